"""Every shipped kind of experiment leaves the lab, in every format, and does there what the run
does.
"""

import copy
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from packaging.version import Version

from litlab.artifact import Artifact
from litlab.artifact.servable import load_servable
from litlab.artifact.trusted import check_trusted
from litlab.commands.export import export_run
from litlab.commands.export.folder import write_manifest
from litlab.commands.export.graph import trace
from litlab.errors import UserError
from litlab.runs.folder import read_json
from tests.conftest import CONFIGS, Outcome, mark_slow
from tests.template.overlays import SMALL

# Whose exporters can do less, as docs/deploy.md says
OLD_TORCH = Version(torch.__version__) < Version("2.12")
# In float32, as exports are: `auto` is bfloat16 on some CPUs.
FLAGS = """
    --trainer.accelerator=cpu --trainer.precision=32-true --trainer.max_epochs=1
    --trainer.callbacks=[] --test_after_fit=false
"""
AXES = yaml.safe_load("""
image: [batch, 3, 32, 32]
ids: [batch, time]
past: [batch, 24, 1]
covariates: [batch, 36, 3]
numbers: [batch, 4]
categories: [batch, 3]
""")


@pytest.fixture
def export(images, texts, series, make_once, run, monkeypatch):
    """Exports a run of an experiment, which is trained for an epoch, once, into a folder."""
    monkeypatch.setattr(export_run, "SECONDS", 0.001)
    data = {
        "cifar": f"--data.dataset=folder --data.path={images} {' '.join(SMALL['cifar'])}",
        "text": f"--data.dataset=csv --data.path={texts} {' '.join(SMALL['text'])}",
        "forecast": f"""
            --data.dataset=csv --data.path={series} --data.context_length=24 --data.horizon=12
            --data.targets=[load] --data.covariates=[hour,heat] --data.batch_size=32
        """,
        "tabular": "--data.target=churn",
    }

    def fit(name: str, folder: Path) -> None:
        monkeypatch.chdir(folder)
        run(f"fit --config={CONFIGS}/{name}.yaml {data[name]} {FLAGS}").check()

    def export(name: str, form: str, output: Path, *flags: str) -> Outcome:
        folder = make_once(f"trained_{name}", partial(fit, name))
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return run(f"export --run {name} --format {form} --output {output} --threads 1", *flags)

    return export


@pytest.fixture
def export_once(export, make_once) -> Callable[[str, str], Path]:
    """The folder of an export, which several tests look at."""

    def once(name: str, form: str) -> Path:
        fill = lambda folder: export(name, form, folder / "export").check()  # noqa: E731
        return make_once(f"{name}_{form}", fill) / "export"

    return once


@pytest.fixture
def exported(export_once, tmp_path) -> Path:
    """A copy of an export, to be replaced or spoiled."""
    return shutil.copytree(export_once("tabular", "onnx"), tmp_path / "copy")


EXPORTS = (
    "tabular onnx", "tabular aoti", "text onnx", "text torchscript", "text pt2", "text aoti",
    "forecast onnx", "forecast torchscript", "forecast pt2",
    "cifar onnx", "cifar torchscript", "cifar pt2", "cifar aoti",
)  # fmt: skip


@pytest.mark.parametrize(
    "line", mark_slow(EXPORTS, "tabular onnx", "forecast torchscript", "cifar pt2")
)
def test_an_export_answers_like_the_run(line, export_once):
    if OLD_TORCH and line in ("forecast onnx", "cifar onnx"):
        pytest.skip("torch 2.10 and 2.11 can't export it")
    name, form = line.split()
    folder = export_once(name, form)
    check_trusted(folder, trust=False)  # it was exported here
    manifest = read_json(folder / "manifest.json")
    assert manifest["parity"]["difference"] <= (1e-4 if form in ("onnx", "aoti") else 1e-5)
    before, after = manifest["metrics"]["run"], manifest["metrics"]["exported"]
    assert before.keys() - after.keys() == {"test/loss"}
    assert {name: before[name] for name in after} == pytest.approx(after, rel=1e-3, abs=1e-5)
    assert all(entry["shape"] == AXES[entry["name"]] for entry in manifest["inputs"])
    assert set(manifest["speed"]) == {"eager", "exported"}
    assert manifest["run"]["name"] == f"{name}/version_0"


QUANTIZED = (
    "tabular onnx int8-static", "tabular onnx int8-dynamic", "tabular pt2 int8-weights",
    "text onnx int8-weights", "text aoti int8-dynamic", "cifar onnx int8-static",
    "cifar aoti int8-static",
)  # fmt: skip


@pytest.mark.parametrize("line", mark_slow(QUANTIZED, "tabular onnx int8-static"))
def test_quantized(line, export, exported):
    """It replaces an earlier export."""
    name, form, kind = line.split()
    done = export(name, form, exported, f"--quantize={kind}")
    if OLD_TORCH and kind == "int8-static":
        assert (done.code, "quantizes nothing with torch" in done.err) == (2, True)
        return
    done.check()
    manifest = read_json(exported / "manifest.json")
    assert manifest["parity"]["equal_classes"] >= 0.95
    before, after = (manifest["metrics"][which]["test/acc"] for which in ("run", "exported"))
    assert before == pytest.approx(after, abs=0.05)
    servable, example = load_servable(name, [])[1].eval(), np.load(exported / "example.npz")
    [plain] = servable(*(torch.from_numpy(example[key]) for key in servable.serving.names))
    assert np.abs(plain.numpy(force=True) - example["expected_probabilities"]).max() > 1e-5, (
        "it is rounded"
    )


REFUSED = {
    "forecast onnx --quantize=int8-weights": "of the weights; leave --quantize out",
    "tabular pt2 --opset=18": "pt2 has no opset; choose --format onnx",
    "tabular onnx --opset=5": "the model can't be written in 5, but in 18; choose",
    "tabular torchscript --quantize=int8-weights": "TorchScript has no quantized layers; choose",
    # What is traced has another weight
    "tabular pt2 --data.batch_size=64": "the exported model differs by",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_can_not_be_exported_is_refused_in_one_line(line, export, tmp_path, monkeypatch):
    def trace_with_another_weight(module, serving):
        changed = copy.deepcopy(module)
        next(changed.parameters()).data += 0.05
        return trace(changed, serving)

    monkeypatch.setattr(export_run, "trace", trace_with_another_weight)
    name, form, flag = line.split()
    done = export(name, form, tmp_path / "export", flag)
    assert done.code == 2, done.err
    assert REFUSED[line] in done.err.splitlines()[-1]
    assert not list(tmp_path.iterdir()), "nothing half-written"


def test_damaged_and_strange_folders_are_refused_in_one_line(exported):
    """tests/litlab finds every bit that is flipped."""
    manifest, graph = read_json(exported / "manifest.json"), exported / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-8])
    old = {"format": "aoti", "versions": {**manifest["versions"], "torch": "2.9.1"}}
    for changed, says in (
        ({}, "model.onnx: it can't be loaded here"),
        ({"version": 1}, "manifest.json: it is damaged or from another version of litlab; export"),
        (old, "compiled for torch 2.9.1, here is "),
    ):
        write_manifest(exported, manifest | changed)
        with pytest.raises(UserError, match=says):
            Artifact(exported)
