"""Small CSV files, and a model that keeps its batches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from litlab.data import PublicFile, SeriesData
from litlab.data.series import PublicSeries
from tests.litlab.data.conftest import Recorder

START = np.datetime64("2024-01-01T00:00:00")
TRAIN = 70  # training rows of the 100 that `write` writes, unless another split is asked for


def hourly(rows: int, start: np.datetime64 = START) -> list[str]:
    return [str(start + np.timedelta64(i, "h")).replace("T", " ") for i in range(rows)]


def wave(rows: int) -> np.ndarray:
    """Two columns that never repeat: (row, 2)."""
    row = np.arange(rows)
    return np.stack([row / 10 + np.sin(row), 100 - np.cos(row * 0.7)], axis=1).round(4)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a CSV file, by default of 100 hours and the columns load and heat."""

    def write_it(text: str | None = None, name: str = "data.csv", rows: int = 100) -> Path:
        if text is None:
            lines = [f"{t},{a},{b}" for t, (a, b) in zip(hourly(rows), wave(rows).tolist(), strict=True)]
            text = "date,load,heat\n" + "\n".join(lines) + "\n"
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write_it


class SeriesRecorder(Recorder):
    """Keeps all batches, by (stage, epoch)."""

    def training_step(self, batch, index):
        self._keep("train", batch)
        return self.weight * batch["past"].mean()

    def predict_step(self, batch, index):
        self._keep("predict", batch)
        return torch.zeros(0)

    def all(self, stage: str, key: str, epoch: int = 0) -> torch.Tensor:
        return torch.cat([batch[key] for batch in self.seen[stage, epoch]])


class Etth1(SeriesData):
    """A series with a public file."""

    public = PublicSeries(
        name="etth1",
        file=PublicFile("https://example.org/ETTh1.csv", "ETTh1.csv", "sha256:0"),
        columns=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
        ends=(8640, 11520, 14400),
    )


@pytest.fixture
def make(write):
    def make_it(rows: int = 100, **options) -> SeriesData:
        settings = {"dataset": "csv", "context_length": 6, "horizon": 3, "season": 4, "batch_size": 8, **options}
        if settings["dataset"] == "csv":
            settings.setdefault("path", str(write(rows=rows)))
        if settings["dataset"] == "etth1":
            return Etth1(**{**settings, "dataset": None})
        return SeriesData(**settings)

    return make_it


def trained(make, make_trainer, tmp_path, **options) -> tuple[SeriesData, str]:
    data, model = make(**options), SeriesRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    return data, str(tmp_path / "model.ckpt")
