"""What torch.export can't trace is told in one line; free sizes stay free."""

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn

from litlab.artifact.servable import Servable
from litlab.commands.export.graph import check_axes, trace
from litlab.data.serving import BATCH, TIME, Serving, TensorSpec
from litlab.errors import UserError


class Rows(Serving):
    """Rows of three numbers."""

    kind = "rows"

    def __init__(self):
        spec = TensorSpec("rows", "float32", (BATCH, 3), "three numbers")
        super().__init__([spec], [TensorSpec("sum", "float32", (BATCH, 1), "their sum")])

    def encode(self, *raw):
        return raw[0]

    def raw(self, batch):
        return (batch,)

    def example(self):
        return (torch.ones(2, 3),)


class Model(LightningModule):
    """A layer, and what is done with its inputs before."""

    def __init__(self, before):
        super().__init__()
        self.layer, self.before = nn.Linear(3, 1), before

    def predict_step(self, batch, batch_idx):
        return self.layer(self.before(batch))


def branch_on_a_value(rows):
    return rows * 2 if rows.max() > 10 else rows


def constant(rows):
    return rows.view(len(rows), 3) + torch.zeros(int(rows.shape[0]), 3) if rows.shape[0] == 2 else rows


def test_a_graph_is_for_batches_of_any_size():
    program = trace(Servable(Model(torch.tanh), Rows()), Rows())
    assert program.module()(torch.ones(7, 3))[0].shape == (7, 1)


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (branch_on_a_value, "export: torch.export can't trace the model .*; see docs/deploy.md"),
        (constant, "export: the model makes the free size 'batch' a constant; use x.shape"),
    ],
)
def test_what_cannot_be_traced(before, message):
    with pytest.raises(UserError, match=message) as refused:
        trace(Servable(Model(before), Rows()), Rows())
    assert "\n" not in str(refused.value)


class Recurrent(LightningModule):
    """A layer that torch.export unrolls."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 4, batch_first=True)

    def predict_step(self, batch, batch_idx):
        return self.gru(batch.unsqueeze(2))[0][:, -1]


def test_a_recurrent_layer_of_any_length_is_named():
    serving = Rows()
    serving.inputs, serving.most = (TensorSpec("rows", "float32", (BATCH, TIME), "numbers"),), {TIME: 9}
    with pytest.raises(
        UserError, match=r"'time' a constant; it unrolls model.gru \(GRU\) .*; choose --format torchscript"
    ):
        trace(Servable(Recurrent(), serving), serving)


def test_axes_are_compared():
    check_axes(Rows(), [["s0", 3]], lambda size: isinstance(size, str))
    for shape in ([2, 3], ["s0", 4], ["s0", "s1"]):
        with pytest.raises(RuntimeError, match="the graph's input 'rows' has the shape"):
            check_axes(Rows(), [shape], lambda size: isinstance(size, str))
