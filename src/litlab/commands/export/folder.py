"""The files beside the graph: manifest, example, README and a script that runs it."""

import json
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from litlab.artifact.manifest import CHECKPOINT, EXAMPLE, FILES, MANIFEST, README, SCRIPT, sha256
from litlab.artifact.runtimes import load_runtime
from litlab.commands.export.formats import RUNTIME
from litlab.commands.export.pages import readme, use_script
from litlab.commands.export.request import Source, Wanted
from litlab.data.serving import Serving
from litlab.runs.masking import mask

KEPT = (
    "epoch", "global_step", "pytorch-lightning_version", "hparams_name", "hyper_parameters", "datamodule_hparams_name",
    "datamodule_hyper_parameters", "config",
)  # fmt: skip


def write_folder(folder: Path, source: Source, serving: Serving, found: dict[str, Any]) -> dict[str, Any]:
    """Write the files beside the graph, and run the script once.

    Args:
        folder: The folder; the graph is in it.
        source: What was exported.
        serving: Its inputs and outputs.
        found: What the manifest says, but for the files.

    Returns:
        The manifest.

    Raises:
        RuntimeError: The script does not work.
    """
    form = found["format"]
    for name, text in serving.files().items():
        (folder / name).write_text(text, encoding="utf-8")
    torch.save(stripped(source), folder / CHECKPOINT)
    raw = {spec.name: tensor.numpy() for spec, tensor in zip(serving.inputs, serving.example(), strict=True)}
    run = load_runtime(form, folder / FILES[form], list(raw), found["versions"], None)
    answers = dict(zip((spec.name for spec in serving.outputs), run(list(raw.values())), strict=True))
    example: dict[str, Any] = {**raw, **{f"expected_{name}": values for name, values in answers.items()}}
    np.savez(folder / EXAMPLE, **example)
    (folder / SCRIPT).write_text(use_script(form, serving, "torchao" in found["versions"]), encoding="utf-8")
    names = [FILES[form], CHECKPOINT, EXAMPLE, *serving.files()]
    manifest = {
        **found,
        "size_bytes": (folder / FILES[form]).stat().st_size,
        "files": {name: sha256(folder / name) for name in names},
    }
    (folder / MANIFEST).write_text(
        json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )
    (folder / README).write_text(readme(manifest), encoding="utf-8")
    _try_out(folder)
    return manifest


def stripped(source: Source) -> dict[str, Any]:
    """Return a checkpoint without weights and the state of the training: settings, and what data and model keep.

    Secrets in the settings are masked, because the folder leaves the house.
    """
    own: dict[str, Any] = {}
    source.model.on_save_checkpoint(own)
    names = {*KEPT, type(source.data).__qualname__, *own}
    kept: dict[str, Any] = {name: value for name, value in source.checkpoint.items() if name in names}
    kept["state_dict"] = {}
    for name in ("hyper_parameters", "datamodule_hyper_parameters"):
        if name in kept:
            kept[name] = mask(kept[name])
    if "config" in kept:  # masked as data: a mask in the text is not valid YAML
        kept["config"] = yaml.safe_dump(mask(yaml.safe_load(kept["config"])), sort_keys=False, allow_unicode=True)
    return kept


def versions(wanted: Wanted, with_torchao: bool) -> dict[str, str]:
    """Return the versions of what made the graph, and of what runs it."""
    names = {"torch", RUNTIME[wanted.form]} | ({"onnx", "onnxscript"} if wanted.form == "onnx" else set())
    names |= {"torchao"} if with_torchao else set()
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in sorted(names)}}


def _try_out(folder: Path) -> None:
    """Run the script in a process of its own, as the next person will."""
    done = subprocess.run([sys.executable, SCRIPT], cwd=folder, capture_output=True, text=True, check=False)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    if done.returncode != 0:
        raise RuntimeError(f"{SCRIPT} of the export failed:\n{done.stdout}{done.stderr}")
