"""What each overlay costs and saves: step time and memory of the three experiments, with and without it.

    python benchmarks/techniques.py [--experiments cifar text forecast] [--overlays ema swa ...] [--minutes 30]

Step time: `bench --compare`, all overlays in turns with the config as it is, so that what else the machine does hits
all of them. Memory: the most that tensors take at once, data included, in a fit of three steps, by torch's allocator;
it is the same each time. An overlay that an experiment refuses has the line that says so.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from common import project, save, summary
from rich.console import Console
from rich.table import Table

from litlab.cli.command import run_command
from litlab.util.peak_memory import peak_tensor_bytes

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
# What needs several processes, what makes no step of another kind, and what is measured elsewhere (profile).
LEFT_OUT = {
    "batch_size_finder", "ddp", "deterministic", "fsdp", "graph_breaks", "lr_finder", "memory_snapshot", "offload",
    "one_cycle", "plateau", "profile", "smoke", "swa", "tta", "warm_restarts",
}  # fmt: skip
OVERLAYS = sorted({path.stem for path in (CONFIGS / "with").glob("*.yaml")} - LEFT_OUT)
THREE_STEPS = [
    "--trainer.max_epochs=1", "--trainer.limit_train_batches=3", "--trainer.limit_val_batches=0",
    "--trainer.num_sanity_val_steps=0", "--trainer.accelerator=cpu", "--test_after_fit=false", "--checkpoint=null",
    "--early_stopping=null", "--trainer.logger=false",
]  # fmt: skip


def times(experiment: str, overlays: list[str], minutes: float, folder: Path) -> dict[str, dict[str, Any]]:
    """By overlay: milliseconds of a step, and how many times as fast it is; or why it was refused."""
    files = {f"{CONFIGS}/with/{name}.yaml": name for name in overlays}
    sides = ",".join(["baseline", *files])
    arguments = [f"--config={CONFIGS}/{experiment}.yaml", f"--minutes={minutes}", f"--compare={sides}"]
    project(folder, "bench", *arguments, threads=os.cpu_count() or 1)
    record = json.loads((folder / f"lightning_logs/bench/{experiment}/compare.json").read_text())
    found: dict[str, dict[str, Any]] = {}
    for trial in record["trials"]:
        name = files.get(trial["change"], trial["change"])
        row = found.setdefault(name, {"ms": []})
        if trial["measured"] is None:
            row["refused"] = trial["reason"].removeprefix(f"{CONFIGS}/")
        else:
            row["ms"] += [1000 * seconds for seconds in trial["measured"]["step_seconds"]]
    for name, row in found.items():
        row["ms"] = summary(row["ms"]) if row["ms"] else None
        path = next((path for path, overlay in files.items() if overlay == name), name)
        if path in record["ratios"]:
            row["times as fast"] = summary(record["ratios"][path]["turns"])
    return found


def memory(folder: Path, experiment: str, overlay: str) -> int | None:
    """MiB that tensors take at most; None where the overlay is refused."""
    names = [experiment] if overlay == "baseline" else [experiment, f"with/{overlay}"]
    files = [f"--config={CONFIGS}/{name}.yaml" for name in names]
    command = [sys.executable, __file__, "--peak", "fit", *files, *THREE_STEPS]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    return round(int(done.stdout.split()[-1]) / 2**20)


def print_peak(arguments: list[str]) -> int:
    """Run ``python -m project ARGUMENTS`` and print the bytes that tensors took at most."""
    sys.argv = ["project", *arguments]
    codes: list[int] = []
    peak = peak_tensor_bytes(lambda: codes.append(run_command("project")))
    print(peak)
    return codes[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", nargs="+", default=["cifar", "text", "forecast"])
    parser.add_argument("--overlays", nargs="+", default=OVERLAYS)
    parser.add_argument("--minutes", type=float, default=30.0, help="for the step times of each experiment")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for experiment in options.experiments:
        with tempfile.TemporaryDirectory() as folder:
            rows = times(experiment, options.overlays, options.minutes, Path(folder))
            with ThreadPoolExecutor(max_workers=2) as pool:  # what else runs does not change it
                peaks = pool.map(partial(memory, Path(folder), experiment), rows)
            for row, peak in zip(rows.values(), peaks, strict=True):
                row["MiB"] = peak
        results[experiment] = rows
        table = Table("overlay", "ms a step", "times as fast", "MiB of tensors", title=experiment)
        for name, row in rows.items():
            milliseconds, ratio = row["ms"], row.get("times as fast")
            table.add_row(
                name,
                "{median:.1f} ({min:.1f} to {max:.1f})".format(**milliseconds) if milliseconds else row["refused"],
                "{median:.2f} ({min:.2f} to {max:.2f})".format(**ratio) if ratio else "",
                "" if row["MiB"] is None else str(row["MiB"]),
            )
        Console(stderr=True).print(table)
    save("techniques", results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        sys.exit(print_peak(sys.argv[2:]))
    main()
