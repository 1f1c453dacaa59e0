"""ETTh1 at the usual horizons: the shipped forecasters beside the ridge of the same run, over several seeds.

python benchmarks/etth1.py --path data [--configs forecast forecast_ensemble] [--horizons 96 192] [--seeds 3]

Each fit is a process of its own, `python -m project fit`; the figures are those of its baselines.json.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from common import project, save

CONFIGS = Path(__file__).parents[1] / "configs"


def fit(config: str, path: Path, horizon: int, seed: int, folder: str) -> dict[str, dict[str, float]]:
    """Return the test metrics of the model and of each baseline, by name."""
    arguments = [
        "fit", "--config", CONFIGS / f"{config}.yaml", "--data.path", path, "--data.horizon", horizon,
        "--data.fallback", "null", "--seed_everything", seed, "--trainer.accelerator", "cpu",
    ]  # fmt: skip
    project(folder, *arguments)
    runs = sorted(Path(folder, "lightning_logs", config).iterdir(), key=lambda run: int(run.name.split("_")[1]))
    return json.loads((runs[-1] / "baselines.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="folder with ETTh1.csv")
    parser.add_argument("--configs", nargs="+", default=["forecast", "forecast_ensemble"])
    parser.add_argument("--horizons", nargs="+", type=int, default=[96, 192, 336, 720])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for config in options.configs:
            results: dict[int, dict] = {}
            for horizon in options.horizons:
                started = time.perf_counter()
                runs = [fit(config, options.path.resolve(), horizon, seed, folder) for seed in range(options.seeds)]
                row: dict = {"seconds_per_run": round((time.perf_counter() - started) / options.seeds, 1)}
                for name in runs[0]:  # the model comes first; baselines don't depend on the seed
                    for metric in ("test/mse", "test/mae"):
                        values = [run[name][metric] for run in runs]
                        row.setdefault(name, {})[metric.removeprefix("test/")] = {
                            "mean": statistics.mean(values),
                            "min": min(values),
                            "max": max(values),
                        }
                results[horizon] = row
                print(config, horizon, json.dumps(row), flush=True)
            save(f"etth1_{config}", {"seeds": options.seeds, "threads_per_run": 1, "results": results})


if __name__ == "__main__":
    main()
