"""What each overlay costs and saves: speed or memory of the three experiments, with and without it.

    python benchmarks/techniques.py times [--experiments cifar text forecast] [--overlays ema muon ...] [--minutes 2]
    python benchmarks/techniques.py memory [--experiments ...] [--overlays ...]

times: `bench --compare` on one thread, three overlays at a time in turns with the config as it is, so that what else
the machine does hits all of them. memory: the most that tensors take at once, data included, in a fit of three steps,
by torch's allocator; it is the same each time. An overlay that an experiment refuses has the line that says so. Where
an experiment has the technique already, or has to give something up for it, the two are compared without that.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

from common import CONFIGS, earlier, project, save, summary
from peak_memory import peak_tensor_bytes
from rich.console import Console
from rich.table import Table

from litlab.cli.main import run_command

# What needs several processes, a logger or a whole training, and what makes no step of another kind.
LEFT_OUT = {
    "batch_size_finder", "ddp", "deterministic", "fsdp", "grad_norms", "graph_breaks", "lr_finder", "memory_snapshot",
    "offload", "one_cycle", "plateau", "profile", "smoke", "swa", "tta", "warm_restarts",
}  # fmt: skip
SLOW = {"bf16", "bf16_true", "amp16"}  # on a CPU without units for it
COMPILED = {
    "compile", "compile_blocks", "compile_dynamic", "compile_max_autotune", "compile_reduce_overhead", "memory_budget",
    "adamw8bit",
}  # fmt: skip
UNCLIPPED = "--trainer.gradient_clip_val=null"
# What takes from an experiment its own form of a technique, or what can't go with it.
WITHOUT = {
    "agc": UNCLIPPED,
    "clip": UNCLIPPED,
    "clip_value": UNCLIPPED,
    "ema": "--ema=null",
    "label_smoothing": "--model.label_smoothing=0",
    "optimizer_in_backward": UNCLIPPED,
}
OVERLAYS = sorted({path.stem for path in (CONFIGS / "with").glob("*.yaml")} - LEFT_OUT)
GROUP = 3  # overlays that are compared at a time
LONGER = 3  # times as many minutes for those that are slow or compile
THREE_STEPS = [
    "--trainer.max_epochs=1", "--trainer.limit_train_batches=3", "--trainer.limit_val_batches=0",
    "--trainer.num_sanity_val_steps=0", "--trainer.accelerator=cpu", "--test_after_fit=false", "--checkpoint=null",
    "--early_stopping=null", "--trainer.logger=false",
]  # fmt: skip

Rows = dict[str, dict[str, Any]]


def without(experiment: str, overlay: str) -> tuple[str, ...]:
    """Return the flags of both sides that an overlay is measured between."""
    if experiment == "forecast" and overlay == "label_smoothing":
        return ()  # it has none, and would refuse the flag before it refuses the overlay
    return (WITHOUT[overlay],) if overlay in WITHOUT else ()


def times(folder: Path, experiment: str, overlays: list[str], minutes: float) -> Rows:
    """Return by overlay: samples per second, and how many times as many as without it; or why it was refused."""
    rows: Rows = {}
    groups: dict[tuple[bool, bool, tuple[str, ...]], list[str]] = {}
    for name in overlays:
        groups.setdefault((name in SLOW, name in COMPILED, without(experiment, name)), []).append(name)
    for (slow, compiled, flags), names in groups.items():
        budget = LONGER * minutes if slow or compiled else minutes
        for start in range(0, len(names), GROUP):
            for name, row in compared(folder, experiment, names[start : start + GROUP], budget, flags).items():
                if name == "baseline" and flags:
                    continue  # of another experiment
                earlier_rates = rows.get(name, {}).get("samples/s", [])
                rows[name] = {**row, "samples/s": earlier_rates + row["samples/s"]}
    for row in rows.values():
        row["samples/s"] = summary(row["samples/s"]) if row["samples/s"] else None
    return rows


def compared(folder: Path, experiment: str, overlays: list[str], minutes: float, more: tuple[str, ...]) -> Rows:
    """Compare some overlays with ``baseline``; return the samples per second of all rounds."""
    files = {f"{CONFIGS}/with/{name}.yaml": name for name in overlays}
    sides = ",".join(["baseline", *files])
    project(
        folder, "bench", f"--config={CONFIGS}/{experiment}.yaml", *more, f"--minutes={minutes}", f"--compare={sides}"
    )
    trials = json.loads((folder / f"lightning_logs/bench/{experiment}/bench.json").read_text())["trials"]
    usual = median(trials["baseline"]["rates"])
    found: Rows = {}
    for side, trial in trials.items():
        row = found[files.get(side, side)] = {"samples/s": trial["rates"]}
        if trial["reason"]:
            row["refused"] = trial["reason"].removeprefix(f"{CONFIGS}/")
        else:
            row["seconds of start-up"] = round(trial["startup"], 1)
            row["times as fast"] = summary([rate / usual for rate in trial["rates"]])
    return found


def memory(folder: Path, experiment: str, overlays: list[str]) -> Rows:
    """Return by overlay: MiB that tensors take at most, or why it was refused; two at a time, as nothing is timed."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        names = ["baseline", *overlays]
        return dict(zip(names, pool.map(partial(_memory, folder, experiment), names), strict=True))


def _memory(folder: Path, experiment: str, overlay: str) -> dict[str, Any]:
    flags = without(experiment, overlay)
    if overlay == "baseline":
        return _peak(folder, experiment, flags)
    row = _peak(folder, experiment, (*flags, f"--config={CONFIGS}/with/{overlay}.yaml"))
    return {**row, "MiB without": _peak(folder, experiment, flags)["MiB"]} if flags else row


@cache  # several overlays are compared with the same other side
def _peak(folder: Path, experiment: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--peak", "fit", f"--config={CONFIGS}/{experiment}.yaml", *arguments]
    done = subprocess.run([*command, *THREE_STEPS], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        line = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
        return {"refused": line.removeprefix("error: ").removeprefix(f"{CONFIGS}/")}
    if done.returncode:
        raise SystemExit(done.stderr)
    return {"MiB": round(int(done.stdout.split()[-1]) / 2**20)}


def print_peak(arguments: list[str]) -> int:
    """Run ``python -m project ARGUMENTS`` and print the bytes that tensors took at most."""
    sys.argv = ["project", *arguments]
    codes: list[int] = []
    peak = peak_tensor_bytes(lambda: codes.append(run_command("project")))
    print(peak)
    return codes[0]


def show(title: str, rows: Rows) -> None:
    """Print what was measured."""
    table = Table("overlay", "samples/s", "times as fast", "MiB of tensors", title=title)
    for name, row in rows.items():
        rates, ratio = row.get("samples/s"), row.get("times as fast")
        table.add_row(
            name,
            "{median:.0f} ({min:.0f} to {max:.0f})".format(**rates) if rates else row.get("refused", ""),
            "{median:.2f} ({min:.2f} to {max:.2f})".format(**ratio) if ratio else "",
            str(row.get("MiB", "")),
        )
    Console(stderr=True).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["times", "memory"])
    parser.add_argument("--experiments", nargs="+", default=["cifar", "text", "forecast"])
    parser.add_argument("--overlays", nargs="+", default=OVERLAYS)
    parser.add_argument("--minutes", type=float, default=2.0, help="for three overlays; those that compile take longer")
    options = parser.parse_args()
    for experiment in options.experiments:
        with tempfile.TemporaryDirectory() as folder:
            if options.what == "times":
                rows = times(Path(folder), experiment, options.overlays, options.minutes)
            else:
                rows = memory(Path(folder), experiment, options.overlays)
        show(experiment, rows)
        name = f"techniques_{options.what}_{experiment}"
        if options.overlays != OVERLAYS:
            before = earlier(name, ["baseline", *OVERLAYS])
            rows = rows | before | {overlay: rows[overlay] for overlay in options.overlays}
        save(name, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        sys.exit(print_peak(sys.argv[2:]))
    main()
