"""What torch.export can't trace is told in one line; free sizes stay free; a script that must
work.
"""

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from litlab.artifact import Artifact
from litlab.artifact.artifact import VERSION, take_arrays
from litlab.artifact.servable import Servable
from litlab.commands.export.folder import write_folder, write_manifest
from litlab.commands.export.graph import check_axes, trace, write_graph
from litlab.data.serving import BATCH, TIME, Serving, TensorSpec
from litlab.errors import UserError
from tests.processes import Python
from tests.tiny_files import flip


class Rows(Serving):
    """Rows of three numbers, or of up to 9."""

    kind = "rows"

    def __init__(self, length=3):
        spec = TensorSpec("rows", "float32", (BATCH, length), "numbers")
        most = {} if length == 3 else {length: 9}
        super().__init__([spec], [TensorSpec("sum", "float32", (BATCH, 1), "their sum")], most)

    def encode(self, *raw):
        return raw[0]

    def raw(self, batch):
        return (batch,)

    def example(self):
        return (torch.ones(2, 3),)


class Model(LightningModule):
    """What is done with rows before a linear layer."""

    def __init__(self, before):
        super().__init__()
        self.before, self.layer = before, nn.Linear(3, 1)

    def predict_step(self, batch, batch_idx):
        return self.layer(self.before(batch))


class Recurrent(nn.GRU):
    """A layer that torch.export unrolls."""

    def forward(self, rows):
        return super().forward(rows.unsqueeze(2))[0][:, -1]


class Branching(nn.Module):
    """A branch on values, which a trace of the example would make a constant."""

    def forward(self, rows):
        return rows * 2 if rows.max() > 10 else rows


class Within(nn.Sequential):
    """One that TorchScript can't take, around one that it can."""

    def forward(self, *rows):
        return self[0](*rows)


@pytest.mark.parametrize(
    ("before", "length", "message"),
    [
        (lambda rows: rows.numpy(), 3, "torch.export can't trace the model .*; see docs/deploy.md"),
        (
            Branching(),
            3,
            "Branching branches on values .*; use torch.where, or try --format torchs",
        ),
        (
            Recurrent(1, 3, batch_first=True),
            TIME,
            r"'time' a constant; it unrolls model.before \(Recurrent\) .*; choose --format torch",
        ),
    ],
)
def test_what_cannot_be_traced(before, length, message):
    with pytest.raises(UserError, match=message) as refused:
        trace(Servable(Model(before), Rows(length)), Rows(length))
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
@pytest.mark.parametrize("before", [Branching(), Within(Branching())])
def test_torchscript_keeps_branches(before, tmp_path):
    model = Servable(Model(before), Rows())
    write_graph("torchscript", None, model, tmp_path / "model.ts")
    graph = torch.jit.load(tmp_path / "model.ts")
    for rows in (torch.ones(2, 3), torch.full((5, 3), 11.0)):
        torch.testing.assert_close(graph(rows), model(rows))


def test_a_branch_that_torchscript_would_lose_is_refused(tmp_path):
    model = Servable(Model(Branching().forward), Rows())  # a function
    with pytest.raises(UserError, match=r"Model branches on the values of tensors, .*; use torch"):
        write_graph("torchscript", None, model, tmp_path / "model.ts")
    assert not list(tmp_path.iterdir())


def test_axes_are_compared():
    graph = trace(Servable(Model(torch.tanh), Rows()), Rows()).module()
    assert graph(torch.ones(7, 3))[0].shape == (7, 1)
    check_axes(Rows(), [["s0", 3]])
    for shape in ([2, 3], ["s0", 4], ["s0", "s1"]):
        with pytest.raises(RuntimeError, match="the graph's input 'rows' has the shape"):
            check_axes(Rows(), [shape])


def test_a_script_that_fails_in_a_process_of_its_own_is_refused(tmp_path):
    """Here the graph is missing."""
    manifest = {"format": "onnx", "versions": {}}
    with pytest.raises(
        UserError, match=r"^export: use\.py fails without this project \(.*model\.onnx"
    ):
        write_folder(tmp_path, Rows(), lambda arrays: [np.ones((2, 1))], manifest)


def test_a_damaged_export_is_not_used(tmp_path):
    """By its own script neither, which people may change."""
    shapes = {
        side: [spec.as_dict() for spec in getattr(Rows(), side)] for side in ("inputs", "outputs")
    }
    rows = Servable(Model(torch.tanh), Rows())
    write_graph("torchscript", None, rows, tmp_path / "model.ts")
    manifest = {"version": VERSION, "format": "torchscript", "versions": {}, **shapes}
    write_manifest(tmp_path, manifest)
    write_folder(tmp_path, Rows(), take_arrays(rows), manifest)
    files = "checksums.json example.npz manifest.json model.ts use.py"
    assert manifest["files"] == files.split()
    with (tmp_path / "use.py").open("a") as script:
        script.write("# mine")
    Artifact(tmp_path)
    for file in tmp_path.glob("[!u]*"):
        for place in (0, 0.5, 1):
            flip(file, place)
            with pytest.raises(UserError, match=rf"^{tmp_path}/.*: it is damaged"):
                Artifact(tmp_path)
            flip(file, place)
    flip(tmp_path / "model.ts", 0.5)
    process = Python(tmp_path / "use.py", cwd=tmp_path)
    says = "it is damaged (model.ts); copy it again, or export the run again"
    assert process.communicate()[1] == f"{tmp_path}: {says}\n"
    assert process.wait() == 1
