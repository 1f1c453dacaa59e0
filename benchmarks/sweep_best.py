"""What a sweep has found against the shipped defaults: fresh fits with new seeds, and the test set.

    python benchmarks/sweep_best.py --config configs/text.yaml --best lightning_logs/sweeps/text/best.yaml
        --metric test/acc [--seeds 101 102 103] [--jobs 2] [-- arguments of every fit]

Both sides take their turns with the same seeds; a seed is one pair. Trials of a sweep have the seeds 0, 1, ..., and
validation metrics only: neither these seeds nor the test set have had a say in what was found.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from common import project, save, summary


def fit(configs: list[Path], seed: int, experiment: str, arguments: list[str], folder: Path, threads: int) -> dict:
    """Fits and tests; returns the content of ``metrics.json``."""
    began = time.perf_counter()
    configs_and_seed = [*(f"--config={path.resolve()}" for path in configs), f"--seed_everything={seed}"]
    project(folder, "fit", *configs_and_seed, f"--experiment={experiment}", *arguments, threads=threads)
    metrics = json.loads((folder / "lightning_logs" / experiment / "version_0" / "metrics.json").read_text())
    print(f"{experiment}: {time.perf_counter() - began:.0f} s, {metrics['test']}", file=sys.stderr)
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="the shipped config")
    parser.add_argument("--best", type=Path, required=True, help="the sweep's best.yaml")
    parser.add_argument("--metric", required=True, help="such as test/acc")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103])
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time, which share the cores")
    parser.add_argument("--name", help="of the results, without which they have that of the config")
    parser.add_argument("arguments", nargs="*", help="after --: arguments of every fit")
    options = parser.parse_args()
    sides = {"defaults": [options.config], "best.yaml": [options.config, options.best]}
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        fits = {
            (side, seed): pool.submit(fit, configs, seed, f"{side}_{seed}", options.arguments, Path(folder), threads)
            for seed in options.seeds
            for side, configs in sides.items()
        }
        values = {side: [fits[side, seed].result()["test"][options.metric] for seed in options.seeds] for side in sides}
    pairs = zip(values["defaults"], values["best.yaml"], strict=True)
    save(
        f"sweep_best_{options.name or options.config.stem}",
        {
            "config": options.config.name,
            "arguments": [argument.rsplit("/", 1)[-1] for argument in options.arguments],  # no folders
            "found": yaml.safe_load(options.best.read_text()),
            "metric": options.metric,
            "seeds": options.seeds,
            "values": values,
            "sides": {side: summary(found) for side, found in values.items()},
            "best.yaml - defaults, by seed": summary([found - shipped for shipped, found in pairs]),
        },
    )


if __name__ == "__main__":
    main()
