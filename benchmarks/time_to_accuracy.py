"""Seconds of training to an accuracy on the test images: the CIFAR experiment against a plain baseline.

    python benchmarks/time_to_accuracy.py --images DIR [--target 0.7] [--repeats 3] [--cap 12]

DIR holds train/<class>/ and test/<class>/. The baseline is what people start with: the VGG-style network, Adam 1e-3,
float32, torchvision's transforms image by image in a DataLoader (the better of 0 and 2 workers in benchmarks/pipeline),
a plain Trainer. Both sides test on all test images after every so many training images, and the clock stands still
while they do. A baseline that has not arrived after CAP times our median is stopped and counted with the time that it
has used: the ratio is then a lower bound, and says so. Repeats alternate.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from common import save, summary
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from project.networks.vgg import VGG

BATCH = 128


class AccuracyClock(Callback):
    """Stops the run at the target accuracy, or out of time; keeps (training seconds, accuracy) pairs.

    Args:
        target: Accuracy on the test images to stop at.
        cap: Training seconds to give up after.
        out: JSON file for the pairs.
        every: Training images between two tests.
    """

    def __init__(self, target: float, cap: float, out: str, every: int = 5000) -> None:
        self.target, self.cap, self.out, self.every = target, cap, out, every
        self.history: list[tuple[float, float]] = []
        self.seconds, self.seen, self.next = 0.0, 0, every

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.datamodule.setup("test")
        self.resumed = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs, batch, batch_idx) -> None:
        self.seen += len(batch[0])
        if self.seen < self.next:
            return
        self.next += self.every
        self.seconds += time.perf_counter() - self.resumed
        self.history.append((self.seconds, self.accuracy(trainer, pl_module)))
        print(f"{self.seconds:7.1f} s  {self.seen:7} images  accuracy {self.history[-1][1]:.4f}", flush=True)
        if self.history[-1][1] >= self.target or self.seconds >= self.cap:
            trainer.should_stop = True
        self.resumed = time.perf_counter()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        Path(self.out).write_text(json.dumps(self.history))

    @torch.inference_mode()
    def accuracy(self, trainer: Trainer, pl_module: LightningModule) -> float:
        """Share of the test images that are classified rightly."""
        pl_module.eval()
        trainer.testing, right, count = True, 0, 0
        for batch in trainer.datamodule.test_dataloader():
            images, labels = trainer.datamodule.on_after_batch_transfer(batch, 0)
            with trainer.precision_plugin.forward_context():
                right += (pl_module(images).argmax(1) == labels).sum().item()
            count += len(labels)
        trainer.training = True
        pl_module.train()
        return right / count


class Baseline(LightningModule):
    """The VGG-style network with Adam 1e-3 and cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.network = VGG()

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class OneByOne(LightningDataModule):
    """ImageFolder, transforms per image and DataLoader, with the images decoded to memory beforehand."""

    def __init__(self, folder: str, workers: int) -> None:
        super().__init__()
        self.folder, self.workers = folder, workers

    def setup(self, stage: str) -> None:
        if hasattr(self, "train"):
            return
        finish = [transforms.ToTensor(), transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))]
        change = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
        self.train, self.test = (
            datasets.ImageFolder(f"{self.folder}/{split}", transforms.Compose(steps))
            for split, steps in (("train", change + finish), ("test", finish))
        )
        for dataset in (self.train, self.test):  # reading files is not what is compared
            decoded = {path: dataset.loader(path) for path, _ in dataset.samples}
            dataset.loader = decoded.__getitem__

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.train, BATCH, shuffle=True, num_workers=self.workers, persistent_workers=self.workers > 0
        )

    def test_dataloader(self) -> DataLoader:
        return DataLoader(self.test, 500)


def baseline(images: str, target: float, cap: float, workers: int) -> list[tuple[float, float]]:
    """One run of the baseline."""
    with tempfile.TemporaryDirectory() as folder:
        clock = AccuracyClock(target, cap, f"{folder}/clock.json")
        trainer = Trainer(
            accelerator="auto", devices=1, max_epochs=100, logger=False, callbacks=[clock],
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Baseline(), datamodule=OneByOne(images, workers))
        return clock.history


def ours(images: str, target: float, epochs: int) -> list[tuple[float, float]]:
    """One run of the shipped config, made short by its number of epochs."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "clock.json"
        arguments = {"target": target, "cap": 1e9, "out": str(out)}
        clock = {"class_path": "time_to_accuracy.AccuracyClock", "init_args": arguments}
        here = Path(__file__).parent
        command = [
            sys.executable, "-m", "project", "fit", "--config", str(here.parent / "configs/cifar.yaml"),
            "--config", str(here.parent / "configs/with/bf16.yaml"),
            "--data.dataset", "folder", "--data.path", images, "--trainer.max_epochs", str(epochs),
            "--trainer.default_root_dir", folder, "--test_after_fit=false", "--early_stopping=null",
            "--trainer.callbacks", json.dumps([clock]),
        ]  # fmt: skip
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(here)})
        return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True)
    parser.add_argument("--target", type=float, default=0.7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cap", type=float, default=12.0, help="give the baseline up after so many times our median")
    parser.add_argument("--epochs", type=int, default=1, help="length that our schedule is made for")
    parser.add_argument("--workers", type=int, default=2, help="DataLoader workers of the baseline")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    runs: dict[str, list] = {"ours": [], "baseline": []}
    for _ in range(options.repeats):
        runs["ours"].append(ours(options.images, options.target, options.epochs))
        cap = options.cap * statistics.median(run[-1][0] for run in runs["ours"])
        runs["baseline"].append(baseline(options.images, options.target, cap, options.workers))
    seconds = {name: summary([run[-1][0] for run in histories]) for name, histories in runs.items()}
    reached = {name: [run[-1][1] >= options.target for run in histories] for name, histories in runs.items()}
    bound = "at least" if not all(reached["baseline"]) else "measured"
    results = {
        "target": options.target,
        "ratio_is": bound,
        "training_seconds": seconds,
        "reached": reached,
        "histories": runs,
    }
    save("time_to_accuracy", {**results, "ratio": seconds["baseline"]["median"] / seconds["ours"]["median"]})


if __name__ == "__main__":
    main()
