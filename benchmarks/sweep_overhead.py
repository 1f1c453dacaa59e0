"""What a sweep costs beside its fits: the same fits by hand, by a sweep with one worker, and with two.

    python benchmarks/sweep_overhead.py [--trials 8] [--repeats 3]

The fits are those of configs/forecast_small.yaml, with a learning rate each, the same ones on every side. By hand is
one ``python -m project fit`` after another. Repeats alternate; every process has one thread. Seconds per trial are
those of the whole command, so that its start-up is shared out over its trials; seconds outside trials are its start-up,
its end and the gaps between trials, as the sweep's own times have them.
"""

import argparse
import contextlib
import ctypes
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import yaml
from common import project, save, summary

PR_SET_CHILD_SUBREAPER = 36  # of Linux: orphans become children of this process
BASE = Path(__file__).resolve().parent.parent / "configs" / "forecast_small.yaml"


def learning_rates(trials: int) -> list[float]:
    """As many learning rates, from 0.001 to 0.01."""
    return [round(0.001 * 10 ** (number / max(1, trials - 1)), 6) for number in range(trials)]


def by_hand(folder: Path, trials: int) -> dict[str, float]:
    """Run the fits, one command each."""
    for rate in learning_rates(trials):
        project(folder, "fit", f"--config={BASE}", f"--model.optimizer.lr={rate}", "--test_after_fit=false")
    return {}


def sweep(folder: Path, trials: int, workers: int) -> dict[str, float]:
    """Run the same fits as the trials of a sweep."""
    spec = {
        "name": "overhead", "base": [str(BASE)], "metric": "val/mse", "direction": "minimize", "trials": trials,
        "sampler": "grid", "pruner": "none", "space": {"model.optimizer.lr": {"choices": learning_rates(trials)}},
    }  # fmt: skip
    (folder / "overhead.yaml").write_text(yaml.safe_dump(spec))
    began = time.time()
    project(folder, "sweep", "--config=overhead.yaml", f"--workers={workers}")
    seconds = time.time() - began
    storage = f"sqlite:///{folder}/lightning_logs/sweeps/overhead/study.db"
    durations = [trial.duration for trial in optuna.load_study(study_name="overhead", storage=storage).trials]
    in_trials = math.fsum(duration.total_seconds() for duration in durations if duration is not None)
    return {"seconds_outside_trials": seconds - in_trials / workers}


def measured(side: Callable[[Path, int], dict[str, float]], trials: int) -> dict[str, float]:
    """Seconds and CPU seconds per trial of a side, and what it says itself."""

    def used() -> float:
        with contextlib.suppress(ChildProcessError):  # what outlives its parent, as a fork server does, is counted too
            while True:
                os.wait()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    with tempfile.TemporaryDirectory() as folder:
        began, before = time.perf_counter(), used()
        said = side(Path(folder), trials)
        seconds = time.perf_counter() - began
        return {"seconds": seconds / trials, "cpu_seconds": (used() - before) / trials, **said}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    sides: dict[str, Callable[[Path, int], dict[str, float]]] = {
        "by hand": by_hand,
        "sweep, 1 worker": lambda folder, trials: sweep(folder, trials, 1),
        "sweep, 2 workers": lambda folder, trials: sweep(folder, trials, 2),
    }
    results: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for repeat in range(arguments.repeats):
        for name, side in sides.items():
            results[name].append(measured(side, arguments.trials))
            print(f"repeat {repeat + 1}: {name}: {results[name][-1]}", file=sys.stderr)

    def row(repeats: list[dict[str, float]]) -> dict[str, Any]:
        per_hour = {"trials_per_hour": summary([3600 / values["seconds"] for values in repeats])}
        return {key: summary([values[key] for values in repeats]) for key in repeats[0]} | per_hour

    def ratio(key: str, name: str, other: str) -> dict[str, float]:
        pairs = zip(results[name], results[other], strict=True)
        return summary([values[key] / others[key] for values, others in pairs])

    save(
        "sweep_overhead",
        {
            "config": BASE.name,
            "trials": arguments.trials,
            "repeats": arguments.repeats,
            "sides": {name: row(repeats) for name, repeats in results.items()},
            "ratios": {
                "seconds per trial, 1 worker / by hand": ratio("seconds", "sweep, 1 worker", "by hand"),
                "CPU seconds per trial, 1 worker / by hand": ratio("cpu_seconds", "sweep, 1 worker", "by hand"),
                "seconds per trial, 2 workers / 1 worker": ratio("seconds", "sweep, 2 workers", "sweep, 1 worker"),
            },
        },
    )


if __name__ == "__main__":
    main()
