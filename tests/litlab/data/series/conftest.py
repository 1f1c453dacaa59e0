"""Small files of series, and a model that keeps its batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import PublicSeries, SeriesData
from tests.litlab.data.conftest import Recorder

TRAIN = 70  # training rows of the 100 that `make` writes, unless another split is asked for


def wave(rows: int) -> np.ndarray:
    """Two columns that never repeat: (row, 2)."""
    row = np.arange(rows)
    return np.stack([row / 10 + np.sin(row), 100 - np.cos(row * 0.7)], axis=1).round(4)


def frame_of(times: Any, **columns: Any) -> pd.DataFrame:
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


class SeriesRecorder(Recorder):
    """Keeps all batches, by (stage, epoch)."""

    def all(self, stage: str, key: str, epoch: int = 0) -> torch.Tensor:
        return torch.cat([batch[key] for batch in self.seen[stage, epoch]])


class Etth1(SeriesData):
    """A series with a public file."""

    public = PublicSeries(
        url="https://example.org/ETTh1.csv",
        name="ETTh1.csv",
        digest="sha256:0",
        columns=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
        ends=(8640, 11520, 14400),
    )


@pytest.fixture
def make() -> Callable[..., SeriesData]:
    """Data of a frame, by default of 100 hours and the columns load and heat, with short
    windows.
    """

    def make_it(path: Any = None, **options: Any) -> SeriesData:
        path = frame_of(hours(100)) if path is None else path
        return SeriesData(
            "csv",
            path,
            **{"context_length": 6, "horizon": 3, "season": 4, "batch_size": 8, **options},
        )

    return make_it
