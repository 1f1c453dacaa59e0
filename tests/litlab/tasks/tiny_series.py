"""The smallest data that a forecaster works with."""

import torch
from torch.utils.data import DataLoader

from litlab.data import ExperimentData
from litlab.data.series.windows import Windows
from litlab.data.serving import Metadata
from litlab.data.split import SPLITS


class TinySeries(ExperimentData):
    """Windows over two noisy sines, `windows` for each stage, in batches of 5."""

    context_length, horizon, num_targets, num_covariates = 12, 6, 2, 0

    def __init__(self, windows: int = 23) -> None:
        super().__init__(batch_size=5, drop_last=False)
        self.windows = windows
        time = torch.arange(3 * windows + self.context_length + self.horizon, dtype=torch.float32)
        self.series = torch.stack([(time / 3).sin(), 2 + (time / 2).cos()], dim=1)
        self.series += 0.1 * torch.randn(
            self.series.shape, generator=torch.Generator().manual_seed(0)
        )
        self.naive_error = torch.tensor([0.5, 0.25])
        self.ridge_calls: list[int | None] = []

    def ridge(self, past: int | None = None) -> torch.Tensor:
        """Not the ridge, but as it: a linear map whose rows sum to one. It repeats the rows of 6
        rows ago.
        """
        self.ridge_calls.append(past)
        rows = past or self.context_length
        return torch.eye(rows)[rows - 6 :]

    def open(self, stage):
        self.sizes = dict.fromkeys(SPLITS, self.windows)
        return Metadata()

    def samples(self, split):
        starts = torch.arange(self.windows) + SPLITS.index(split) * self.windows
        return Windows({"past": self.series}, starts, self.context_length, self.horizon)

    def predict_dataloader(self):
        past = everything(self, 0)["past"][:3]
        return DataLoader([{"past": part} for part in past.split(2)], batch_size=None)


def everything(data: TinySeries, number: int) -> dict[str, torch.Tensor]:
    """All windows of train (0), val (1) or test (2) as one batch."""
    return data.samples(SPLITS[number])[torch.arange(data.windows)]
