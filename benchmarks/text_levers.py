"""What each lever of the text experiment brings: test accuracy with all of them, and with each one taken away.

python benchmarks/text_levers.py --train TRAIN.csv --test TEST.csv [--columns label title description]
    [--text-columns title description] [--seeds 2] [--flags="--data.batch_size 64 ..."]

Each fit is a process of its own, `python -m project fit --config configs/text.yaml`, on one thread.
"""

import argparse
import json
import shlex
import statistics
import tempfile
import time
from pathlib import Path

from common import project, save

CONFIG = Path(__file__).parents[1] / "configs/text.yaml"
# Each takes one thing away from, or puts one thing into, the shipped config.
LEVERS = {
    "as shipped": [],
    "without convolutional stem": ["--model.stem=0"],
    "mean pooling only": ["--model.pooling=[mean]"],
    "without word dropout": ["--model.word_dropout=0"],
    "without label smoothing": ["--model.label_smoothing=0"],
    "without EMA": ["--ema=null"],
    "without attention (no block)": ["--model.num_layers=0"],
    "sinusoidal positions": ["--model.positions=sinusoidal"],
    "post-norm": ["--model.norm=post"],
    "two blocks": ["--model.num_layers=2"],
    "byte-pair tokens": ["--data.tokenizer=bpe"],
    "plain textbook encoder": [
        "--model.stem=0", "--model.pooling=[mean]", "--model.word_dropout=0",
        "--model.label_smoothing=0", "--ema=null", "--model.embedding_dropout=0", "--model.head_dropout=0",
        "--model.positions=sinusoidal",
    ],
}  # fmt: skip


def fit(flags: list[str], folder: str) -> tuple[dict[str, dict[str, float]], float]:
    """Return the test metrics of the model and of each baseline by name, and the seconds of the whole command."""
    started = time.perf_counter()
    project(folder, "fit", "--config", CONFIG, "--trainer.accelerator=cpu", *flags)
    runs = sorted(Path(folder, "lightning_logs/text").iterdir(), key=lambda run: int(run.name.split("_")[1]))
    return json.loads((runs[-1] / "baselines.json").read_text()), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--columns", nargs="+", help="names of the columns, for files without a header")
    parser.add_argument("--text-columns", nargs="+", default=["text"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=LEVERS, default=list(LEVERS))
    parser.add_argument("--name", default="text_levers", help="name of the file in results/")
    parser.add_argument("--flags", default="", help="further flags for every fit")
    options = parser.parse_args()
    data = [
        "--data.dataset=csv",
        f"--data.path={options.train.resolve()}",
        f"--data.test_path={options.test.resolve()}",
    ]
    data += [f"--data.text_columns=[{','.join(options.text_columns)}]", *shlex.split(options.flags)]
    data += [f"--data.columns=[{','.join(options.columns)}]"] if options.columns else []
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        fit([*data, "--trainer.max_epochs=1"], folder)  # fills the cache
        for seed in range(options.seeds):
            for name in options.only:
                rows, seconds = fit([*data, *LEVERS[name], f"--seed_everything={seed}"], folder)
                model, *_ = rows.values()
                row = results.setdefault(name, {"accuracies": [], "seconds": [], "baselines": {}})
                row["accuracies"].append(round(model["test/acc"], 4))
                row["seconds"].append(round(seconds, 1))
                row["baselines"] = {name: row["test/acc"] for name, row in list(rows.items())[1:]}
                print(seed, name, row["accuracies"][-1], round(seconds), flush=True)
    for row in results.values():
        row["mean"] = round(statistics.mean(row["accuracies"]), 4)
    save(options.name, {"flags": options.flags, "threads_per_run": 1, "results": results})


if __name__ == "__main__":
    main()
