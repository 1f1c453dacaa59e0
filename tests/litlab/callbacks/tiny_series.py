"""The smallest forecaster and series that the callbacks work with."""

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader


class TinyForecaster(LightningModule):
    """Forecast every step of a series by the last value of the past; the interval is 1 to each
    side.
    """

    coverage = 0.9

    def test_step(self, batch, batch_idx):
        forecast = batch["past"][:, -1:].expand_as(batch["future"])
        return {
            "loss": forecast.mean(),
            "forecast": forecast,
            "lower": forecast - 1,
            "upper": forecast + 1,
        }


class TinySeries(LightningDataModule):
    """Windows of 5 + 3 hours of a random series of two columns, starting at its rows 10 to 10 +
    `windows`.
    """

    context_length, horizon, first = 5, 3, 10

    def __init__(self, windows: int = 20) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        rows = self.first + windows + self.context_length + self.horizon - 1
        self.series = torch.randn(rows, 2, generator=generator)
        self.mean, self.scale, self.naive_error = torch.tensor(
            [[100.0, 200.0], [2.0, 3.0], [0.5, 1.5]]
        )
        self.target_names = ["column 0", "column 1"]
        self.times = np.datetime64("2024-01-01", "s") + np.arange(
            len(self.series)
        ) * np.timedelta64(1, "h")
        self.windows = windows

    def test_dataloader(self):
        starts = torch.arange(self.windows).tensor_split(self.trainer.world_size)[
            self.trainer.global_rank
        ]

        def gather(chosen):
            start = self.first + torch.stack(chosen)
            rows = self.series[start[:, None] + torch.arange(self.context_length + self.horizon)]
            return {
                "past": rows[:, : self.context_length],
                "future": rows[:, self.context_length :],
                "start": start,
            }

        return DataLoader(starts, batch_size=6, collate_fn=gather)
