"""The smallest forecaster and series that the callbacks work with."""

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader


class TinyForecaster(LightningModule):
    """Forecast every step of a series by the last value of the past; the interval is 1 to each side."""

    coverage = 0.9

    def test_step(self, batch, batch_idx):
        forecast = batch["past"][:, -1:].expand_as(batch["future"])
        return {"loss": forecast.mean(), "forecast": forecast, "lower": forecast - 1, "upper": forecast + 1}


class TinySeries(LightningDataModule):
    """Windows of 5 + 3 hours of a random series of `targets` columns, starting at its rows 10 to 10 + `windows`."""

    context_length, horizon, first = 5, 3, 10

    def __init__(self, windows: int = 20, targets: int = 2, batch_size: int = 6) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.series = torch.randn(
            self.first + windows + self.context_length + self.horizon - 1, targets, generator=generator
        )
        self.mean = 100.0 * torch.arange(1, targets + 1)
        self.scale = 2.0 + torch.arange(targets)
        self.naive_error = 0.5 + torch.arange(targets)
        self.target_names = [f"column {number}" for number in range(targets)]
        self.times = np.datetime64("2024-01-01", "s") + np.arange(len(self.series)) * np.timedelta64(1, "h")
        self.windows = windows
        self.batch_size = batch_size

    def test_dataloader(self):
        starts = torch.arange(self.windows).tensor_split(self.trainer.world_size)[self.trainer.global_rank]

        def gather(chosen):
            start = self.first + torch.stack(chosen)
            rows = self.series[start[:, None] + torch.arange(self.context_length + self.horizon)]
            return {"past": rows[:, : self.context_length], "future": rows[:, self.context_length :], "start": start}

        return DataLoader(starts, batch_size=self.batch_size, collate_fn=gather)
