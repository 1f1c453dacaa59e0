"""The folder of an export: where it is, and the files beside the graph."""

import json
import os
import platform
import shutil
import subprocess
import sys
from argparse import Namespace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from litlab.artifact.manifest import CHECKPOINT, EXAMPLE, FILES, MANIFEST, SCRIPT, sha256
from litlab.artifact.runtimes import OPERATORS, Run
from litlab.cli.fit import Experiment
from litlab.data.serving import Serving
from litlab.errors import UserError
from litlab.runs.folder import RunFolder
from litlab.runs.masking import mask
from litlab.util.files import check_folder

OF_TRAINING = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks")  # parts of a checkpoint
LOAD = {
    "onnx": 'import onnxruntime\n\nmodel = onnxruntime.InferenceSession(here / "{file}")',
    "pt2": 'import torch\n\nmodel = torch.export.load(here / "{file}").module()',
    "aoti": 'import torch\n\nmodel = torch._inductor.aoti_load_package(str(here / "{file}"))',
    "torchscript": 'import torch\n\nmodel = torch.jit.load(here / "{file}")',
}
RUN_ONNX = "outputs = model.run(None, inputs)"
RUN_TORCH = """\
with torch.no_grad():
    outputs = [tensor.numpy() for tensor in model(*map(torch.from_numpy, inputs.values()))]"""
USE = '''\
"""Run the exported model: python use.py [inputs.npz]. Needs numpy and {packages}, nothing else."""

import json
import sys
from pathlib import Path

import numpy as np

here = Path(__file__).parent
{load}
manifest = json.loads((here / "{manifest}").read_text(encoding="utf-8"))
arrays = np.load(sys.argv[1] if len(sys.argv) > 1 else here / "{example}")
inputs = {{entry["name"]: arrays[entry["name"]] for entry in manifest["inputs"]}}
{run}
for entry, values in zip(manifest["outputs"], outputs):
    print(entry["name"], values.shape)
    print(values)
    if len(sys.argv) == 1:  # the example knows what comes out
        np.testing.assert_allclose(values, arrays["expected_" + entry["name"]], rtol=1e-3, atol=1e-3)
'''


def choose_folder(options: Namespace, run: RunFolder | None) -> Path:
    """Return the folder to write.

    Args:
        options: ``output``, ``format`` and ``quantize``.
        run: The run.

    Raises:
        UserError: If something else would be lost.
    """
    name = "-".join(filter(None, [options.format, options.quantize]))
    default = Path("exported") if run is None else run.path / "exported"
    folder = Path(os.path.abspath(options.output or default / name))
    check_folder("--output", folder.parent)
    if folder.exists() and (not folder.is_dir() or _find_other_files(folder)):
        raise UserError(f"--output: {folder} holds other files; choose another place")
    return folder


def _find_other_files(folder: Path) -> set[str]:
    """Return what is in a folder, and no export has put there; all of it where there is no export."""
    try:
        names = {MANIFEST, SCRIPT, *json.loads((folder / MANIFEST).read_bytes())["files"]}
    except (OSError, ValueError, TypeError, KeyError):
        names = set()
    return {path.name for path in folder.iterdir()} - names


def write_folder(folder: Path, experiment: Experiment, serving: Serving, run: Run, manifest: dict[str, Any]) -> None:
    """Write the files beside the graph, and run the script once.

    Args:
        folder: The folder; the graph is in it.
        experiment: What was exported.
        serving: Its inputs and outputs.
        run: The exported model.
        manifest: What the manifest says, but for the checksums.

    Raises:
        RuntimeError: The script does not work.
    """
    form = manifest["format"]
    for name, text in serving.files().items():
        (folder / name).write_text(text, encoding="utf-8")
    torch.save(strip_checkpoint(experiment), folder / CHECKPOINT)
    raw = [tensor.numpy() for tensor in serving.example()]
    expected = [f"expected_{spec.name}" for spec in serving.outputs]
    example: dict[str, Any] = dict(zip([*serving.names, *expected], [*raw, *run(raw)], strict=True))
    np.savez(folder / EXAMPLE, **example)

    names = [FILES[form], CHECKPOINT, EXAMPLE, *serving.files()]
    manifest = manifest | {"files": {name: sha256(folder / name) for name in names}}
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")

    packages = " and ".join(sorted(manifest["versions"].keys() & {"onnxruntime", "torch", "torchao"}))
    load = LOAD[form].format(file=FILES[form])
    if "torchao" in packages:
        load = load.replace("\n", f"\nimport {OPERATORS}  # defines operators of the graph\n", 1)
    run_lines = RUN_ONNX if form == "onnx" else RUN_TORCH
    values = {"packages": packages, "manifest": MANIFEST, "example": EXAMPLE, "load": load, "run": run_lines}
    (folder / SCRIPT).write_text(USE.format(**values), encoding="utf-8")

    # As the next person will, in a process without this project.
    done = subprocess.run([sys.executable, SCRIPT], cwd=folder, capture_output=True, text=True, check=False)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    if done.returncode != 0:
        raise RuntimeError(f"{SCRIPT} of the export failed:\n{done.stdout}{done.stderr}")


def strip_checkpoint(experiment: Experiment) -> dict[str, Any]:
    """Return a checkpoint without weights and the state of the training: settings, and what data and model keep.

    Secrets in the settings are masked, because the folder leaves the house.
    """
    assert experiment.checkpoint is not None
    kept = {name: value for name, value in experiment.checkpoint.items() if name not in OF_TRAINING}
    kept["state_dict"] = {}
    for name in ("hyper_parameters", "datamodule_hyper_parameters"):
        if name in kept:
            kept[name] = mask(kept[name])
    if "config" in kept:  # masked as data: a mask in the text is not valid YAML
        kept["config"] = yaml.safe_dump(mask(yaml.safe_load(kept["config"])), sort_keys=False, allow_unicode=True)
    return kept


def get_versions(options: Namespace) -> dict[str, str]:
    """Return the versions of what runs a graph, and of torch, which made it."""
    names = ["torch"]
    if options.format == "onnx":
        names.append("onnxruntime")
    elif options.quantize is not None:
        names.append("torchao")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
