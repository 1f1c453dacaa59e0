"""The folder of an export: where it is, and the files beside the graph."""

import json
import os
import platform
import subprocess
import sys
from argparse import Namespace
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from litlab.artifact.artifact import EXAMPLE, FILES, MANIFEST, OPERATORS, SCRIPT, Run
from litlab.data.serving import Serving
from litlab.errors import UserError
from litlab.util.checksums import CHECKSUMS, write_checksums
from litlab.util.files import check_replaceable

LOAD = {
    "onnx": 'onnxruntime.InferenceSession(here / "{file}")',
    "pt2": 'torch.export.load(here / "{file}").module()',
    "aoti": 'torch._inductor.aoti_load_package(str(here / "{file}"))',
    "torchscript": 'torch.jit.load(here / "{file}")',
}
RUN_ONNX = "outputs = model.run(None, inputs)"
RUN_TORCH = """\
with torch.no_grad():
    outputs = [tensor.numpy() for tensor in model(*map(torch.from_numpy, inputs.values()))]"""
USE = '''\
"""Run the exported model: python use.py [inputs.npz]. Needs {packages}, nothing else."""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
{imports}

here = Path(__file__).parent
try:
    checksums = json.loads((here / "{checksums}").read_text(encoding="utf-8"))
    found = {{name: zlib.crc32((here / name).read_bytes()) for name in checksums}}
    damaged = [name for name in checksums if found[name] != checksums[name]]
except (OSError, ValueError) as error:
    damaged = [error]
if damaged:
    sys.exit(f"{{here}}: it is damaged ({{damaged[0]}}); copy it again, or export the run again")

model = {load}
manifest = json.loads((here / "{manifest}").read_text(encoding="utf-8"))
arrays = np.load(sys.argv[1] if len(sys.argv) > 1 else here / "{example}")
inputs = {{entry["name"]: arrays[entry["name"]] for entry in manifest["inputs"]}}
{run}
for entry, values in zip(manifest["outputs"], outputs):
    print(entry["name"], values.shape)
    print(values)
    if len(sys.argv) == 1:  # the example knows what comes out
        expected = arrays["expected_" + entry["name"]]
        np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-3)
'''


def choose_folder(options: Namespace, run: str | None) -> Path:
    """Return the folder to write; nothing but an unchanged export may be lost."""
    name = "-".join(filter(None, [options.format, options.quantize]))
    folder = Path(os.path.abspath(options.output or Path(run or "", "exported", name)))
    with suppress(OSError):
        folder.rmdir()  # one that is empty
    # The run may be another's
    check_replaceable(folder, None if options.output else folder.parents[1])
    return folder


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write what is known of the files, and the checksums of all but the script, which people may
    change.
    """
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    write_checksums(folder, leave_out=SCRIPT)


def write_folder(folder: Path, serving: Serving, run: Run, manifest: dict[str, Any]) -> None:
    """Write the files beside graph and manifest, and run the script once: operators of this project
    would fail.
    """
    for name, text in serving.files().items():
        (folder / name).write_text(text, encoding="utf-8")
    raw = [tensor.numpy() for tensor in serving.example()]
    expected = [f"expected_{spec.name}" for spec in serving.outputs]
    example: dict[str, Any] = dict(zip([*serving.names, *expected], [*raw, *run(raw)], strict=True))
    np.savez(folder / EXAMPLE, **example)

    # The script, as the next person will run it: in a process without this project.
    form = manifest["format"]
    modules = ["onnxruntime" if form == "onnx" else "torch"]
    if "torchao" in manifest["versions"]:
        modules.append(OPERATORS)  # defines operators of the graph
    script = USE.format(
        packages=", ".join(["numpy", *modules]),
        imports="\n".join(f"import {module}" for module in modules),
        load=LOAD[form].format(file=FILES[form]),
        run=RUN_ONNX if form == "onnx" else RUN_TORCH,
        manifest=MANIFEST,
        checksums=CHECKSUMS,
        example=EXAMPLE,
    )
    (folder / SCRIPT).write_text(script, encoding="utf-8")
    manifest["files"] = sorted(path.name for path in folder.iterdir())
    write_manifest(folder, manifest)
    done = subprocess.run(
        [sys.executable, SCRIPT], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        line = done.stderr.strip().rpartition("\n")[2]
        raise UserError(
            f"export: {SCRIPT} fails without this project ({line}); instead of your own operator, "
            "use torch's (docs/operators.md)"
        )


def get_versions(options: Namespace) -> dict[str, str]:
    names = ["torch"]
    if options.format == "onnx":
        names.append("onnxruntime")
    elif options.quantize:
        names.append("torchao")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in names}}
