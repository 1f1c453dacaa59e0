"""What drawing classes evenly, or weighing them in the loss, does to macro F1 where classes are uneven.

python benchmarks/balance.py DIR [--seeds 3] [--epochs 6]

DIR is a folder of images, train/<class>/ and test/<class>/, such as CIFAR-10. Three classes are used: 4,500, 450 and 45
training images (90 / 9 / 1 %), and all test images. Each side is `cifar.yaml` with 64 channels; the last epoch is
tested, as five images of the rare class are too few to choose one by. Sides in turns, each a process of its own on two
threads.
"""

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path

from common import CONFIGS, project, save, summary
from rich.console import Console
from rich.progress import track

CLASSES = {"cat": 4500, "deer": 450, "dog": 45}
SIDES = {
    "as they are": [],
    "balance: even": ["--data.balance=even"],
    "balance: sqrt": ["--data.balance=sqrt"],
    "class_weights: even": ["--model.class_weights=even"],
}


def uneven(source: Path, folder: Path) -> Path:
    """Link the images of the three classes into a folder; return it."""
    for split in ("train", "test"):
        for name, count in CLASSES.items():
            files = sorted((source / split / name).iterdir())[: count if split == "train" else None]
            (folder / split / name).mkdir(parents=True)
            for file in files:
                os.symlink(file.resolve(), folder / split / name / file.name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    chosen = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as place:
        data = uneven(chosen.folder, Path(place, "data"))
        cases = [(seed, side) for seed in range(chosen.seeds) for side in SIDES]
        for seed, side in track(cases, console=Console(stderr=True)):
            run = Path(place, f"{side} {seed}".replace(":", ""))
            run.mkdir()
            project(
                run, "fit", f"--config={CONFIGS}/cifar.yaml", "--data.dataset=folder", f"--data.path={data}",
                f"--data.cache_dir={place}/cache", "--data.batch_size=100", "--model.width=64",
                f"--trainer.max_epochs={chosen.epochs}", "--trainer.callbacks=[ConfusionMatrix]",
                "--trainer.accelerator=cpu", "--trainer.precision=32-true", "--checkpoint.monitor=null",
                "--data.val_fraction=0", "--early_stopping=null", f"--seed_everything={seed}", *SIDES[side], threads=2,
            )  # fmt: skip
            folder = run / "lightning_logs/cifar/version_0"
            test = json.loads((folder / "metrics.json").read_text())["test"]
            with (folder / "classes.csv").open(newline="") as stream:
                recalls = {f"recall {row['class']}": float(row["recall"]) for row in csv.DictReader(stream)}
            found[side].append({"macro F1": test["test/f1"], "accuracy": test["test/acc"], **recalls})
    results = {
        side: {name: summary([round(one[name], 4) for one in rows]) for name in rows[0]} for side, rows in found.items()
    }
    each = {side: [round(one["macro F1"], 4) for one in rows] for side, rows in found.items()}
    save("balance", {"training images": CLASSES, "epochs": chosen.epochs, "macro F1 by seed": each, "sides": results})


if __name__ == "__main__":
    main()
