"""Sinusoids to be learned from a few points each: the tasks of few-shot regression."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from litlab.data import GOLDEN, ExperimentData, Metadata
from litlab.types import PositiveInt, check_bounds

AMPLITUDE, PHASE, X = (0.1, 5.0), (0.0, torch.pi), (-5.0, 5.0)  # the paper's ranges; all three are uniform
SPLITS = ("train", "val", "test")


class Sinusoids(ExperimentData[Metadata]):
    """Regression tasks of Finn et al. 2017 (arXiv:1703.03400): y = amplitude * sin(x - phase), without noise.

    A sample is a task. Its amplitude is drawn from [0.1, 5], its phase from [0, pi], and x from [-5, 5]. Tasks are
    generated, and depend on nothing but the seed, the split, their number and, in training, the epoch: every epoch
    has new ones, and those of val and test stay the same.

    A batch is a dict of float32 tensors: ``support_x`` and ``support_y``, (task, shots, 1), which a model adapts to;
    ``query_x`` and ``query_y``, (task, queries, 1), which it is judged by; ``amplitude`` and ``phase``, (task,).

    Args:
        shots: Support points of a task.
        queries: Query points of a task.
        train_tasks: Tasks in an epoch.
        val_tasks: Tasks of the validation.
        test_tasks: Tasks of the test.
        **settings: batch_size, in tasks; seed and settings of the loaders, as of `ExperimentData`.

    Raises:
        UserError: If a value is out of range.
    """

    item = "tasks"

    def __init__(
        self,
        shots: PositiveInt = 10,
        queries: PositiveInt = 10,
        train_tasks: PositiveInt = 25_000,
        val_tasks: PositiveInt = 600,
        test_tasks: PositiveInt = 600,
        **settings: Any,
    ) -> None:
        check_bounds(Sinusoids, locals(), "data")
        super().__init__(**settings)
        self.save_hyperparameters(logger=False)
        self.shots, self.queries = shots, queries
        self.tasks = {"train": train_tasks, "val": val_tasks, "test": test_tasks}

    @property
    def description(self) -> str:
        """The tasks in one line."""
        counts = ", ".join(f"{count:,} {split}" for split, count in self.tasks.items())
        return f"sinusoids of {self.shots} support and {self.queries} query points: {counts}"

    def open(self, stage: str | None) -> Metadata:
        """Set the sizes of the splits; there is nothing to read."""
        self.sizes = dict(self.tasks)
        return Metadata()

    def samples(self, split: str) -> TensorDataset:
        """Return the number of each task and that of its split; `transform` makes the tasks."""
        count = self.tasks[split]
        return TensorDataset(torch.arange(count), torch.full((count,), SPLITS.index(split)))

    def transform(self, batch: list[Tensor], epoch: int | None) -> dict[str, Tensor]:
        """Make the tasks of a batch, on the device that it is on.

        Args:
            batch: Numbers of the tasks and of their split, int64 of shape (task,).
            epoch: Number of the epoch, for a training batch.
        """
        number, split = batch
        if getattr(self.trainer, "overfit_batches", 0):
            epoch = 0  # the same tasks again and again
        place = number + (split << 32) + ((epoch or 0) << 34)  # one integer for each task of all epochs and splits
        points = self.shots + self.queries
        uniform = uniforms(place, self.seed, 2 + points)
        amplitude, phase, x = (
            low + (high - low) * part
            for part, (low, high) in zip(uniform.split([1, 1, points], dim=1), (AMPLITUDE, PHASE, X), strict=True)
        )
        y = amplitude * torch.sin(x - phase)
        (support_x, query_x), (support_y, query_y) = (
            part[..., None].split([self.shots, self.queries], dim=1) for part in (x, y)
        )
        return {
            "support_x": support_x, "support_y": support_y, "query_x": query_x, "query_y": query_y,
            "amplitude": amplitude[:, 0], "phase": phase[:, 0],
        }  # fmt: skip


def uniforms(place: Tensor, seed: int, count: int) -> Tensor:
    """Return random numbers that follow from place and seed alone, by the generator splitmix64.

    Args:
        place: Of a row of numbers, int64 of shape (row,).
        seed: Of all rows.
        count: Numbers in a row.

    Returns:
        Float32 from [0, 1), of shape (row, count).
    """
    step = GOLDEN - 2**64  # as a signed integer: torch has no arithmetic of uint64
    start = (seed * GOLDEN + 2**63) % 2**64 - 2**63
    row = _mix(_mix(place + start) * step)
    state = row[:, None] + torch.arange(1, count + 1, device=place.device) * step
    return (_mix(state) >> 40 & 0xFFFFFF).float() / 2**24


def _mix(value: Tensor) -> Tensor:
    """Return the finaliser of splitmix64 of int64 numbers, which wrap around (Steele et al. 2014)."""
    value = (value ^ (value >> 30 & 2**34 - 1)) * (0xBF58476D1CE4E5B9 - 2**64)
    value = (value ^ (value >> 27 & 2**37 - 1)) * (0x94D049BB133111EB - 2**64)
    return value ^ (value >> 31 & 2**33 - 1)
