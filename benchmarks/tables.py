"""The shipped table experiment on the real tables that scikit-learn ships, beside the baselines of
the same runs.

python benchmarks/tables.py [--sets diabetes wine] [--seeds 3]

Each fit is a process of its own, `python -m project fit --config configs/tabular.yaml`; the figures
are those of its baselines.json. The rows are shuffled anew for each seed, so that each has another
split: 70/10/20 %. Pixels of the digits that are dark in all but a few images are left out, as
TabularData refuses columns that never change.
"""

import argparse
import csv
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import sklearn
from common import project, save
from sklearn import datasets

CONFIG = Path(__file__).parents[1] / "configs/tabular.yaml"
SETS = {
    "diabetes": lambda: datasets.load_diabetes(scaled=False),
    "breast cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
}
METRICS = {"regression": ("test/mae", "test/r2"), "classification": ("test/acc", "test/f1")}


def write(name: str, seed: int, path: Path) -> None:
    """Write a set as a CSV file with a column `target`, its rows shuffled."""
    table = SETS[name]()
    kept = [
        place
        for place, column in enumerate(table.data.T)
        if np.sum(column != np.median(column)) >= 20
    ]
    classes = getattr(table, "target_names", None)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*(table.feature_names[place] for place in kept), "target"])
        for row in np.random.default_rng(seed).permutation(len(table.target)):
            target = table.target[row]
            writer.writerow(
                [*table.data[row, kept], target if classes is None else classes[int(target)]]
            )


def fit(name: str, seed: int, folder: str) -> tuple[dict[str, dict[str, float]], float]:
    """Return the test metrics of the model and of each baseline by name, and the seconds of the
    whole command.
    """
    path = Path(folder, "table.csv")
    write(name, seed, path)
    started = time.perf_counter()
    project(
        folder, "fit", "--config", CONFIG, "--data.dataset", "csv", "--data.path", path,
        "--data.target", "target", "--seed_everything", seed, "--trainer.accelerator", "cpu",
        "--trainer.enable_progress_bar", "false",
        *(["--model", "Regressor"] if name == "diabetes" else []),
    )  # fmt: skip
    runs = sorted(
        Path(folder, "lightning_logs/tabular").iterdir(),
        key=lambda run: int(run.name.split("_")[1]),
    )
    return json.loads((runs[-1] / "baselines.json").read_text()), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            runs, seconds = zip(
                *(fit(name, seed, folder) for seed in range(options.seeds)), strict=True
            )
            row: dict = {"seconds_per_run": round(statistics.mean(seconds), 1)}
            for method in runs[0]:  # the model comes first
                for metric in METRICS["regression" if name == "diabetes" else "classification"]:
                    values = [run[method][metric] for run in runs]
                    row.setdefault(method, {})[metric.removeprefix("test/")] = {
                        "mean": round(statistics.mean(values), 4),
                        "min": round(min(values), 4),
                        "max": round(max(values), 4),
                    }
            results[name] = row
            print(name, json.dumps(row), flush=True)
    save(
        "tables",
        {
            "scikit-learn": sklearn.__version__,
            "seeds": options.seeds,
            "threads_per_run": 1,
            "results": results,
        },
    )


if __name__ == "__main__":
    main()
