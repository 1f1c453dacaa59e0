"""Sinusoids to be learned from a few points each: the tasks of few-shot regression."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from litlab.data import ExperimentData, Metadata, uniform
from litlab.types import PositiveInt

# The paper's ranges; all three are uniform
AMPLITUDE, PHASE, X = (0.1, 5.0), (0.0, torch.pi), (-5.0, 5.0)
SPLITS = ("train", "val", "test")


class Sinusoids(ExperimentData):
    """Regression tasks of Finn et al. 2017 (arXiv:1703.03400): y = amplitude * sin(x - phase),
    without noise.

    A sample is a task. Its amplitude is drawn from [0.1, 5], its phase from [0, pi], and x from
    [-5, 5]. Tasks are generated, and depend on nothing but the seed, the split, their number and,
    in training, the epoch: every epoch has new ones, and those of val and test stay the same.

    A batch is a dict of float32 tensors: ``support_x`` and ``support_y``, (task, shots, 1), which a
    model adapts to; ``query_x`` and ``query_y``, (task, queries, 1), which it is judged by;
    ``amplitude`` and ``phase``, (task,).

    Args:
        shots: Support points of a task.
        queries: Query points of a task.
        train_tasks: Tasks in an epoch.
        val_tasks: Tasks of the validation.
        test_tasks: Tasks of the test.
        **settings: batch_size, in tasks; seed and settings of the loaders, as of `ExperimentData`.
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
        points = self.shots + self.queries
        drawn = torch.arange(2 + points, device=number.device)
        place = (number + (split << 32) << 20)[:, None] + drawn  # (task, number drawn)
        parts = (
            uniform(place.flatten(), self.seed, epoch or 0, "sinusoids")
            .view_as(place)
            .split([1, 1, points], dim=1)
        )
        amplitude, phase, x = (
            low + (high - low) * part
            for part, (low, high) in zip(parts, (AMPLITUDE, PHASE, X), strict=True)
        )
        y = amplitude * torch.sin(x - phase)
        (support_x, query_x), (support_y, query_y) = (
            part[..., None].split([self.shots, self.queries], dim=1) for part in (x, y)
        )
        return {
            "support_x": support_x, "support_y": support_y, "query_x": query_x, "query_y": query_y,
            "amplitude": amplitude[:, 0], "phase": phase[:, 0],
        }  # fmt: skip
