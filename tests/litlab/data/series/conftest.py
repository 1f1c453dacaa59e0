"""Small files of series."""

import numpy as np
import pandas as pd
import torch

from litlab.data import SeriesData


def wave(rows: int) -> np.ndarray:
    """Two columns that never repeat: (row, 2)."""
    row = np.arange(rows)
    return np.stack([row / 10 + np.sin(row), 100 - np.cos(row * 0.7)], axis=1).round(4)


def frame_of(times, **columns) -> pd.DataFrame:
    """Times and two columns, or others."""
    values = dict(zip(("load", "heat"), wave(len(times)).T, strict=True))
    return pd.DataFrame({"date": list(times), **(columns or values)})


def hours(rows: int, start: str = "2024-01-01") -> list[str]:
    return pd.date_range(start, periods=rows, freq="h").astype(str).tolist()


def long_frame(**rows: int) -> pd.DataFrame:
    """So many hours of each place, row by row in turns; of the second one other values."""
    parts = [frame_of(hours(count)).assign(place=name) for name, count in rows.items()]
    parts[1]["load"] += 50
    return pd.concat(parts).sort_values("date", kind="stable")


def take(data: SeriesData, split: str) -> dict[str, torch.Tensor]:
    """All windows of a split."""
    return data.samples(split)[torch.arange(data.sizes[split])]


def predict(data: SeriesData, source) -> dict[str, torch.Tensor]:
    data.predict_input = source
    (batch,) = data.predict_dataloader()
    return batch


def make(path=None, **options) -> SeriesData:
    """Data of a frame, by default of 100 hours and the columns load and heat, with short
    windows.
    """
    path = frame_of(hours(100)) if path is None else path
    settings = {"context_length": 6, "horizon": 3, "season": 4, "batch_size": 8}
    return SeriesData(path=path, **settings | options)
