"""An ensemble of small CNNs in one run, beside one network and as many runs of one network.

python benchmarks/ensemble.py DIR [--members 4] [--seeds 3] [--epochs 5] [--images 20000]

DIR is a folder of images, train/<class>/ and test/<class>/, such as CIFAR-10. The network is `VGG` with 16, 32 and 64
channels, group norms and a linear head: vmap can take it. Sides, in turns, each a process of its own on two threads:
"one": one network. "loop": an ensemble, member after member. "vmap": the same, at once. "runs": as many runs of one
network, whose mean probability is the ensemble's; seconds are their sum. Accuracy and calibration (expected calibration
error, 15 bins) are those of the test split after the last epoch; seconds those of the training.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from common import CONFIGS, project, save, summary
from rich.console import Console
from rich.progress import Progress

SIDES = {
    "one": [],
    "loop": ["--model.vectorize=false"],
    "vmap": ["--model.vectorize=true"],
    "runs": [],
}


def fit(folder: Path, seed: int, flags: list[str]) -> Path:
    """Fit and test once; return the run folder."""
    folder.mkdir()
    network = {
        "class_path": "project.networks.vgg.VGG",
        "init_args": {"widths": [16, 32, 64], "hidden": [], "norm": "project.networks.norms.GroupNorm"},
    }
    project(
        folder, "fit", f"--config={CONFIGS}/cifar_vgg.yaml", f"--model.network={json.dumps(network)}",
        "--data.dataset=folder", "--early_stopping=null", "--checkpoint.monitor=null", "--trainer.callbacks=[]",
        "--trainer.accelerator=cpu", "--trainer.precision=32-true", f"--seed_everything={seed}", *flags, threads=2,
    )  # fmt: skip
    return folder / "lightning_logs/cifar_vgg/version_0"


def calibration(run: Path, test: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the probabilities of a run of one network for the test split, and its accuracy and calibration."""
    from litlab.tasks import Classifier

    checkpoint = next((run / "checkpoints").glob("last.ckpt"))
    model = Classifier.load_from_checkpoint(checkpoint, map_location="cpu", weights_only=True).eval()
    with torch.inference_mode():
        probabilities = torch.cat([model.predict_step(images, 0) for images, _ in test])
    return probabilities, judged(probabilities, torch.cat([labels for _, labels in test]))


def judged(probabilities: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Return accuracy and expected calibration error."""
    from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

    classes = probabilities.shape[1]
    return {
        "acc": multiclass_accuracy(probabilities, labels, classes, average="micro").item(),
        "ece": multiclass_calibration_error(probabilities, labels, classes, n_bins=15).item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=20_000, help="training images per epoch")
    chosen = parser.parse_args()
    from litlab.data import ImageData

    rows: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as place, Progress(console=Console(stderr=True)) as progress:
        data = ImageData("folder", str(chosen.folder.resolve()), cache_dir=f"{place}/cache")
        test = list(data.batches("test"))
        flags = [
            f"--data.path={chosen.folder.resolve()}", f"--data.cache_dir={place}/cache",
            f"--trainer.max_epochs={chosen.epochs}", f"--trainer.limit_train_batches={chosen.images // 128}",
        ]  # fmt: skip
        task = progress.add_task("", total=chosen.seeds * (len(SIDES) - 1 + chosen.members))
        for seed in range(chosen.seeds):
            for side, own in SIDES.items():
                members = chosen.members if side not in ("one", "runs") else 1
                number = chosen.members if side == "runs" else 1
                runs = []
                for part in range(number):
                    progress.update(task, description=f"{side}, seed {seed}")
                    name, many = Path(place, f"{side} {seed} {part}"), [f"--model.members={members}"]
                    runs.append(fit(name, seed * 100 + part, [*flags, *own, *many]))
                    progress.advance(task)
                rows[side].append(result(runs, test, members))
    results = {
        side: {name: summary([round(one[name], 4) for one in found]) for name in found[0]}
        for side, found in rows.items()
    }
    settings = {name: value for name, value in vars(chosen).items() if name != "folder"}
    save("ensemble", {**settings, "batch": 128, "sides": results})


def result(runs: list[Path], test: Any, members: int) -> dict[str, float]:
    """Return what a side reached: the mean network or the ensemble, and what it took."""
    found = [json.loads((run / "metrics.json").read_text()) for run in runs]
    cost = {
        "seconds": sum(metrics["seconds"] for metrics in found),
        "peak GiB": max(metrics["peak_memory_gib"] for metrics in found),
    }
    outputs = [calibration(run, test) for run in runs]
    if members > 1:
        return {f"ensemble {name}": value for name, value in outputs[0][1].items()} | cost
    mean = {f"member {name}": sum(one[name] for _, one in outputs) / len(runs) for name in ("acc", "ece")}
    if len(runs) == 1:
        return mean | cost
    labels = torch.cat([labels for _, labels in test])
    joint = judged(torch.stack([probabilities for probabilities, _ in outputs]).mean(dim=0), labels)
    return mean | {f"ensemble {name}": value for name, value in joint.items()} | cost


if __name__ == "__main__":
    main()
