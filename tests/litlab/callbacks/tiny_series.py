"""The smallest forecaster and series that the callbacks work with."""

import numpy as np
import torch

from tests.litlab.tasks import tiny_series


def repeat_last(batch) -> dict[str, torch.Tensor]:
    """Forecast every step of a series by the last value of the past; the interval is 1 to each
    side.
    """
    forecast = batch["past"][:, -1:].expand_as(batch["future"])
    return {"forecast": forecast, "lower": forecast - 1, "upper": forecast + 1}


class TinySeries(tiny_series.TinySeries):
    """Windows of 5 + 3 hours, with what plots are told of the series."""

    context_length, horizon = 5, 3
    target_names = ("column 0", "column 1")

    def __init__(self, windows: int = 20) -> None:
        super().__init__(windows)
        self.first = 2 * windows  # of the test
        self.mean, self.scale = torch.tensor([[100.0, 200.0], [2.0, 3.0]])
        hours = np.arange(len(self.series)) * np.timedelta64(1, "h")
        self.times = np.datetime64("2024-01-01", "s") + hours
