"""Whether the overlay that ``bench`` writes makes ``fit`` faster than the shipped config, from end to end.

    python benchmarks/bench_gain.py [cifar text forecast] [--minutes 10] [--allow batch_size] [--repeats 3] [--epochs N]

For each experiment ``python -m project bench`` runs once. Then whole commands ``fit``, without the test, alternate with
and without its overlay, and their seconds are compared turn by turn: start-up, validation and checkpoints are in them.
Where bench finds nothing that pays there is no overlay, and that is the result: bench_gain.json, or with --allow
bench_gain_allow.json. Further arguments go to all commands:

    python benchmarks/bench_gain.py cifar -- --data.dataset folder --data.path DIR
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import CONFIGS, save, split_flags, summarise


def command(folder: Path, *arguments: object) -> float:
    """Run ``python -m project`` with torch's own choice of threads; return its seconds."""
    began = time.perf_counter()
    words = [sys.executable, "-m", "project", *map(str, arguments)]
    done = subprocess.run(words, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return time.perf_counter() - began


def measured(folder: Path, experiment: str, chosen: argparse.Namespace, more: list[str]) -> dict[str, Any]:
    """Bench an experiment, then fit it with and without the overlay in turns."""
    base = [f"--config={CONFIGS / experiment}.yaml", *more]
    allowed = [f"--allow={chosen.allow}"] if chosen.allow else []
    seconds = command(folder, "bench", f"--minutes={chosen.minutes}", *allowed, *base)
    found = folder / "lightning_logs/bench" / experiment
    record = json.loads((found / "bench.json").read_text())
    trials = {name: trial["reason"] or summarise(trial["rates"]) for name, trial in record["trials"].items()}
    result = {"bench_seconds": seconds, "samples_per_second": trials, "best": record["best"]}
    if record["best"] == "baseline":
        return result
    limits = ["--test_after_fit=false"]
    limits += [f"--trainer.max_epochs={chosen.epochs}"] if chosen.epochs else []
    limits += [f"--trainer.limit_train_batches={chosen.batches}"] if chosen.batches else []
    sides: dict[str, list[float]] = {"as shipped": [], "with bench.yaml": []}
    for _ in range(chosen.repeats):
        for side, times in sides.items():
            overlay = [f"--config={found / 'bench.yaml'}"] if side == "with bench.yaml" else []
            times.append(command(folder, "fit", *base, *overlay, *limits))
            print(f"{experiment}, {side}: {times[-1]:.1f} s", file=sys.stderr)
    ratios = [shipped / tuned for shipped, tuned in zip(*sides.values(), strict=True)]
    seconds_of_fit = {side: summarise(times) for side, times in sides.items()}
    overlay_text = (found / "bench.yaml").read_text()
    return {**result, "overlay": overlay_text, "fit_seconds": seconds_of_fit, "times_as_fast": summarise(ratios)}


def main() -> None:
    arguments, more = split_flags()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", default=["cifar", "text", "forecast"])
    parser.add_argument("--minutes", type=float, default=10, help="of bench, for each experiment")
    parser.add_argument("--allow", help="as of bench: settings that may be kept although they change what is learned")
    parser.add_argument("--repeats", type=int, default=3, help="of the fits")
    parser.add_argument("--epochs", type=int, help="of the fits, in place of the config's")
    parser.add_argument("--batches", type=int, help="of an epoch of the fits, in place of all")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        results = {name: measured(Path(folder), name, chosen, more) for name in chosen.experiments}
    settings = {name: value for name, value in vars(chosen).items() if name != "experiments"}
    name = "bench_gain_allow" if chosen.allow else "bench_gain"
    save(name, {**settings, "arguments": more, "experiments": results})


if __name__ == "__main__":
    main()
