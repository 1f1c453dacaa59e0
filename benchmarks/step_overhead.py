"""CPU time per training step: Classifier with logging, metrics and callbacks against a bare
Trainer.

    python benchmarks/step_overhead.py [--repeats 7]

The network is so small (16 -> 32 -> 10) that a step is nothing but overhead. The bare side is a
LightningModule that only returns its loss, under Trainer(barebones=True); ours logs to TensorBoard
every 50 steps, counts loss, accuracy and F1 of every sample, and runs with the callbacks of the
command line: with those that let a run survive (exact resume, run record, stop signals, guard) and
without. Repeats alternate; one thread, process time.
"""

import argparse
import logging
import tempfile
import time
import warnings

import torch
from common import save, summarise
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from torch import nn

from litlab.callbacks import NaNGuard
from litlab.checkpointing.resume import ExactResume
from litlab.cli.config import Command
from litlab.cli.fit import build_experiment, build_trainer
from litlab.runs.record import RunRecord
from litlab.runs.run import Run
from litlab.runs.signals import StopSignals
from litlab.util.team import use_package

STEPS = 2000
SURVIVAL = (ExactResume, RunRecord, StopSignals, NaNGuard)


class Batches:
    """The same batch of 32 vectors, so many times."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.batch = (
            torch.randn(32, 16, generator=generator),
            torch.randint(0, 10, (32,), generator=generator),
        )

    def __len__(self) -> int:
        return STEPS

    def __iter__(self):
        for _ in range(STEPS):
            yield self.batch


class VectorData(LightningDataModule):
    """Batches as a DataModule, for the command line."""

    num_classes = property(lambda self: 10)

    def train_dataloader(self) -> Batches:
        return Batches()


class Tiny(nn.Sequential):
    """16 -> 32 -> 10."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))


class Bare(LightningModule):
    """Nothing but a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Tiny()

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def timed(base: type[LightningModule], seconds: list[float]):
    """Return a subclass that appends the CPU seconds of each epoch."""

    class Timed(base):
        def on_train_epoch_start(self, *arguments):
            super().on_train_epoch_start(*arguments)
            self.began = time.process_time()

        def on_train_batch_end(self, *arguments):
            super().on_train_batch_end(*arguments)
            if arguments[-1] == STEPS - 1:
                seconds.append(time.process_time() - self.began)

    return Timed


def bare() -> float:
    """Microseconds per step of the second epoch."""
    seconds: list[float] = []
    Trainer(barebones=True, max_epochs=2, accelerator="cpu").fit(timed(Bare, seconds)(), Batches())
    return seconds[-1] / STEPS * 1e6


def ours(survives: bool) -> float:
    """Measure the same through ``python -m project fit``, with all that lets a run survive or
    without.
    """
    seconds: list[float] = []

    with tempfile.TemporaryDirectory() as folder:
        command = Command([
            "fit", "--model=litlab.tasks.Classifier", "--model.network=__main__.Tiny",
            "--data=__main__.VectorData", "--model.optimizer=torch.optim.SGD",
            "--model.optimizer.lr=0.01", "--trainer.max_epochs=2", "--trainer.accelerator=cpu",
            f"--trainer.default_root_dir={folder}", "--test_after_fit=false",
            '--checkpoint={"monitor": "train/acc", "mode": "max"}',
            '--early_stopping={"monitor": "train/acc", "mode": "max", "patience": 9}',
        ])  # fmt: skip
        experiment = build_experiment(command)
        # The clock costs all sides the same
        experiment.model.__class__ = timed(type(experiment.model), seconds)
        with Run.start(command) as run:
            trainer = build_trainer(experiment, run)
            if not survives:
                trainer.callbacks = [
                    callback for callback in trainer.callbacks if not isinstance(callback, SURVIVAL)
                ]
            trainer.fit(experiment.model, experiment.data)
    return seconds[-1] / STEPS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    use_package("project")
    sides = {
        "bare Trainer": bare,
        "without survival": lambda: ours(False),
        "as shipped": lambda: ours(True),
    }
    microseconds: dict[str, list[float]] = {name: [] for name in sides}
    bare()
    for _ in range(arguments.repeats):
        for name, side in sides.items():
            microseconds[name].append(side())
    table = {name: summarise(values) for name, values in microseconds.items()}
    medians = {name: row["median"] for name, row in table.items()}
    ratios = {
        "as shipped / bare Trainer": medians["as shipped"] / medians["bare Trainer"],
        "as shipped / without survival": medians["as shipped"] / medians["without survival"],
    }
    save("step_overhead", {"cpu_microseconds_per_step": table, "ratios": ratios})


if __name__ == "__main__":
    main()
