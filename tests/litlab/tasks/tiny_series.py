"""The smallest data that a forecaster works with."""

from functools import partialmethod

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader


class TinySeries(LightningDataModule):
    """Windows over two noisy sines, `windows` for each stage, in batches of 5; ranks share them
    without padding.
    """

    context_length, horizon, num_targets, num_covariates = 12, 6, 2, 0

    def __init__(self, windows: int = 23) -> None:
        super().__init__()
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

    def stage(self, number: int) -> list[dict[str, torch.Tensor]]:
        """Windows of train (0), val (1) or test (2), those of this rank."""
        every = self.trainer.world_size if self.trainer else 1
        first = self.trainer.global_rank if self.trainer else 0
        starts = range(number * self.windows + first, (number + 1) * self.windows, every)
        length = self.context_length
        return [
            {
                "past": self.series[start:][:length],
                "future": self.series[start + length :][: self.horizon],
                "start": torch.tensor(start),
            }
            for start in starts
        ]

    def make_loader(self, number: int) -> DataLoader:
        return DataLoader(self.stage(number), batch_size=5)  # pyright: ignore[reportArgumentType]

    train_dataloader = partialmethod(make_loader, 0)
    val_dataloader = partialmethod(make_loader, 1)
    test_dataloader = partialmethod(make_loader, 2)

    def predict_dataloader(self):
        windows = [{"past": window["past"]} for window in self.stage(0)[:3]]
        return DataLoader(windows, batch_size=2)  # pyright: ignore[reportArgumentType]


def everything(data: TinySeries, number: int) -> dict[str, torch.Tensor]:
    """All windows of a stage as one batch."""
    windows = data.stage(number)
    return {name: torch.stack([window[name] for window in windows]) for name in windows[0]}
