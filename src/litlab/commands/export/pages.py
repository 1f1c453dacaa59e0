"""The text files of an export: ``use.py`` and ``README.md``."""

from typing import Any

from litlab.artifact.manifest import EXAMPLE, FILES, MANIFEST
from litlab.artifact.runtimes import OPERATORS
from litlab.commands.export.formats import RUNTIME
from litlab.data.serving import Serving

_LOAD = {
    "onnx": ("import onnxruntime", 'session = onnxruntime.InferenceSession(here / "{file}")',
             "outputs = session.run(None, inputs)"),
    "pt2": ("import torch", 'model = torch.export.load(here / "{file}").module()', None),
    "aoti": ("import torch", 'model = torch._inductor.aoti_load_package(str(here / "{file}"))', None),
    "torchscript": ("import torch", 'model = torch.jit.load(here / "{file}")', None),
}  # fmt: skip
_TORCH = (
    "with torch.no_grad():\n    outputs = [tensor.numpy() for tensor in model(*map(torch.from_numpy, inputs.values()))]"
)
_SCRIPT = '''"""Run the exported model: python use.py [inputs.npz]. Needs numpy and {runtime}, nothing else."""

import json
import sys
from pathlib import Path

import numpy as np
{imported}

here = Path(__file__).parent
manifest = json.loads((here / "{manifest}").read_text(encoding="utf-8"))
given = np.load(sys.argv[1] if len(sys.argv) > 1 else here / "{example}")
inputs = {{entry["name"]: given[entry["name"]] for entry in manifest["inputs"]}}
{load}
{run}
for entry, values in zip(manifest["outputs"], outputs):
    print(entry["name"], values.shape)
    print(values)
    if len(sys.argv) == 1:  # the example knows what comes out
        np.testing.assert_allclose(values, given["expected_" + entry["name"]], rtol=1e-3, atol=1e-3)
'''


def use_script(form: str, serving: Serving, with_torchao: bool) -> str:
    """Return ``use.py``: the model on the example or on arrays of one's own, with the format's runtime alone."""
    imported, load, run = _LOAD[form]
    more = f"\nimport {OPERATORS}  # it defines operators of the graph" if with_torchao else ""
    return _SCRIPT.format(
        runtime=RUNTIME[form] + " and torchao" * with_torchao, imported=imported + more,
        load=load.format(file=FILES[form]), run=run or _TORCH, manifest=MANIFEST, example=EXAMPLE,
    )  # fmt: skip


def readme(manifest: dict[str, Any]) -> str:
    """Return ``README.md``: what the model takes and gives, how well it does and how fast it is."""
    form, parity = manifest["format"], manifest["parity"]["run"]
    quantized = f", quantized ({manifest['quantize']})" if manifest["quantize"] else ""
    commit = f", commit {manifest['run']['commit'][:12]}" if manifest["run"]["commit"] else ""
    packages = [RUNTIME[form], *(["torchao"] if "torchao" in manifest["versions"] else [])]
    needed = " and ".join(f"{name} {manifest['versions'][name]}" for name in packages)
    parts = [
        f"# {manifest['run']['name']} as {form}{quantized}",
        f"Exported from the run {manifest['run']['name']}{commit}. `python use.py` runs it on an example, "
        f"`python use.py inputs.npz` on arrays of yours. That needs numpy and {needed}. "
        f"`{MANIFEST}` has all that is said here, and more.",
        "## Inputs and outputs",
        _table(
            ["name", "type", "shape", "what"], [_tensor(entry) for entry in (*manifest["inputs"], *manifest["outputs"])]
        ),
        f"## Compared with the run\n\nOn {parity['samples']:,} samples the outputs differ by "
        f"{parity['difference']:.2g} at most and {parity['mean_difference']:.2g} on average, in probabilities or "
        "standard deviations of a column"
        + ("." if parity["equal_classes"] is None else f"; {parity['equal_classes']:.2%} get the same class."),
        _table(["test metric", "run", "exported"], _metrics(manifest)),
        f"## Size and speed\n\n{manifest['size_bytes'] / 2**20:.2f} MiB, loaded in {manifest['load_seconds']:.2f} s. "
        f"Milliseconds for a batch, median (95th percentile), on {manifest['threads']} threads:",
        _table(["", "1 sample", "32 samples"], speed_rows(manifest)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def speed_rows(manifest: dict[str, Any]) -> list[list[str]]:
    """Return a row for each side that was measured: its name, and the milliseconds of each size of a batch."""
    return [
        [side, *(f"{one['median_ms']:.2f} ({one['p95_ms']:.2f})" for one in sizes.values())]
        for side, sizes in manifest["speed"].items()
    ]


def _tensor(entry: dict[str, Any]) -> list[str]:
    return [entry["name"], entry["dtype"], f"({', '.join(map(str, entry['shape']))})", entry["what"]]


def _metrics(manifest: dict[str, Any]) -> list[list[str]]:
    before, after = manifest["metrics"]["run"], manifest["metrics"]["exported"]
    return [[name, f"{value:.4f}", f"{after[name]:.4f}"] for name, value in before.items() if name in after]


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""
