"""Small tables."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from litlab.data import TabularData
from tests.litlab.data.conftest import Recorder

HEADER = ["size", "age", "city", "kind", "price"]


def make_rows(count: int = 100, seed: int = 0) -> list[list[str]]:
    """Rows of two numbers, two categories and a price that follows from them; some cells are empty."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        size, age = rng.uniform(20, 200), rng.integers(0, 90)
        city, kind = rng.choice(["Bonn", "Köln", "Mainz"]), "house" if size > 110 else "flat"
        price = 1000 * size - 100 * age + 20_000 * (city == "Köln") + rng.normal(0, 1000)
        rows.append([f"{size:.2f}", "" if number % 7 == 3 else str(age), city, kind, f"{price:.0f}"])
    return rows


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    return path


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    """houses.csv: 100 rows."""
    return write_csv(tmp_path / "houses.csv", [HEADER, *make_rows()])


@pytest.fixture
def make(houses) -> Callable[..., TabularData]:
    """Makes data of houses.csv, or of other rows if given; by default to regress the price."""

    def make_it(rows: list[list[str]] | None = None, **options) -> TabularData:
        if rows is not None:
            write_csv(houses, rows)
        return TabularData(**{"dataset": "csv", "path": str(houses), "target": "price", "batch_size": 8, **options})

    return make_it


@pytest.fixture(autouse=True)
def said(monkeypatch) -> list[str]:
    """What the user is told."""
    lines = []
    for module in ("bad_rows", "tables.reading", "tables.source", "tables.predictions"):
        monkeypatch.setattr(f"litlab.data.{module}.rank_zero_info", lines.append)
    return lines


class TableRecorder(Recorder):
    """Keeps the batches; what it predicts of a row is its first number."""

    outputs = 1

    def predict_step(self, batch, index):
        self._keep("predict", batch)
        first = batch["numbers"][:, :1]
        return first if self.outputs == 1 else torch.cat([first.sigmoid(), 1 - first.sigmoid()], dim=1)

    def column(self, stage: str, name: str, epoch: int = 0) -> torch.Tensor:
        return torch.cat(
            [(batch[0] if isinstance(batch, list | tuple) else batch)[name] for batch in self.seen[stage, epoch]]
        )


def everything(data, split="train"):
    samples = data.samples(split)
    return samples[torch.arange(len(samples))]
