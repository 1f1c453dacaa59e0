"""Runs in every format and every way to quantize: parity, test metric, size, time to load, latency.

    python benchmarks/exports.py cifar=RUN text=RUN forecast=RUN tabular=RUN [--only onnx ...]
    [--threads 2]

RUN is the folder of a run that was trained with that config; its data must be where it was. Each
export is a process of its own, and has checked itself; what it refuses is recorded by its line.
Rows of an earlier result stay, unless they are measured again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import earlier, save
from rich.console import Console
from rich.progress import track

FORMATS = ("onnx", "pt2", "aoti", "torchscript")
KINDS = ("int8-weights", "int8-dynamic", "int8-static")
MAIN = {"cifar": "test/acc", "text": "test/acc", "forecast": "test/mse", "tabular": "test/acc"}
# Refused for a reason that does not depend on the format: once is enough.
CASES = [(form, None) for form in FORMATS] + [
    (form, kind) for kind in KINDS for form in ("onnx", "aoti")
]


def export(run: Path, form: str, kind: str | None, threads: int) -> dict[str, Any]:
    """Export a run; return what the manifest says, or the line of the refusal."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "exported"
        flags = ["--format", form, "--output", str(output), "--threads", str(threads)]
        flags += ["--quantize", kind] if kind else []
        command = [sys.executable, "-m", "project", "export", "--run", str(run), *flags]
        done = subprocess.run(
            command, cwd=run.parents[2], capture_output=True, text=True, check=False
        )
        if done.returncode == 2:
            return {"refused": done.stderr.splitlines()[-1].removeprefix("error: ")}
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
        return json.loads((output / "manifest.json").read_text())


def row(manifest: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return what the table has of a manifest."""
    if "refused" in manifest:
        return manifest
    parity = manifest["parity"]
    return {
        "difference": float(f"{parity['difference']:.2g}"),
        "equal_classes": parity["equal_classes"],
        "metric": [round(manifest["metrics"][side][metric], 4) for side in ("run", "exported")],
        "size_mib": round(manifest["size_bytes"] / 2**20, 2),
        "load_seconds": manifest["load_seconds"],
        "speed": manifest["speed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="EXPERIMENT=RUN")
    parser.add_argument("--only", nargs="+", help="formats, quantized or not")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    runs = {
        name: Path(run).resolve() for name, _, run in (one.partition("=") for one in options.runs)
    }
    cases = [
        (name, form, kind)
        for name in runs
        for form, kind in CASES
        if not options.only or form in options.only
    ]
    results: dict[str, Any] = earlier(
        "exports", [f"{name} {form} {kind or 'float32'}" for name in MAIN for form, kind in CASES]
    )
    for name, form, kind in track(cases, console=Console(stderr=True)):
        found = row(export(runs[name], form, kind, options.threads), MAIN[name])
        results[f"{name} {form} {kind or 'float32'}"] = found
        save("exports", {"threads": options.threads, "metrics": MAIN, **results})


if __name__ == "__main__":
    main()
