"""Small CSV files of texts."""

import csv
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import PublicFile, TextData
from litlab.data.text import PublicTexts, generated
from tests.litlab.data.conftest import Recorder

_FILES = [PublicFile(f"https://example.com/{split}.csv", f"news/{split}.csv", "md5:0") for split in ("train", "test")]


def read_news(root: Path) -> pd.DataFrame:
    files = {split: root / f"news/{split}.csv" for split in ("train", "test")}
    return pd.concat([pd.read_csv(file, names=["label", "text"]).assign(split=key) for key, file in files.items()])


PUBLIC_SETS = {
    "news": PublicTexts("news", tuple(_FILES), ("World", "Sports", "Business", "Sci/Tech"), read_news),
    "films": PublicTexts("films", tuple(_FILES), ("negative", "positive"), read_news),
}


def named(name: str) -> type[TextData]:
    """The DataModule of a public data set."""
    return type(name, (TextData,), {"public": PUBLIC_SETS[name]})


WORDS = [f"w{number}" for number in range(30)]


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    return path


def make_rows(count: int, seed: int = 0, longest: int = 20) -> list[list[str]]:
    """Rows of (text, label): good and bad reviews in turn, of 2 to `longest` words; each starts with its number."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = "good" if number % 2 else "bad"
        words = rng.choice(WORDS, rng.integers(0, longest - 1)).tolist()
        rows.append([" ".join([f"number{seed}x{number}", label, *words]), label])
    return rows


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """reviews.csv with 100 rows and a row of names, test.csv with 20."""
    write_csv(tmp_path / "reviews.csv", [["text", "label"], *make_rows(100)])
    write_csv(tmp_path / "test.csv", [["text", "label"], *make_rows(20, seed=1)])
    return tmp_path / "reviews.csv"


@pytest.fixture
def make_data(tmp_path: Path) -> Callable[..., TextData]:
    def make(**options) -> TextData:
        settings = {"cache_dir": str(tmp_path / "cache"), "batch_size": 8, **options}
        if settings.get("dataset") in PUBLIC_SETS:
            return named(settings.pop("dataset"))(**settings)
        return TextData(**settings)

    return make


@pytest.fixture
def csv_data(make_data, reviews) -> Callable[..., TextData]:
    def make(**options) -> TextData:
        return make_data(**{"dataset": "csv", "path": str(reviews), **options})

    return make


class TextRecorder(Recorder):
    """Keeps the batches; its predictions tell texts apart by their length."""

    def predict_step(self, batch, index):
        self._keep("predict", batch)
        share = (batch["ids"] != 0).sum(1) / 100
        return torch.stack((share, 1 - share), dim=1)

    def ids(self, stage: str, epoch: int = 0) -> list[list[int]]:
        """The texts in the order in which they came, without padding."""
        batches = [batch[0] if isinstance(batch, list | tuple) else batch for batch in self.seen[stage, epoch]]
        return [[i for i in row if i] for batch in batches for row in batch["ids"].tolist()]


def decode(data: TextData, ids: list[int]) -> list[str]:
    """The words, or pieces of words, that ids stand for."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(data.state_dict()["tokenizer"])
    return [tokenizer.id_to_token(i) for i in ids]


@pytest.fixture
def said(caplog) -> pytest.LogCaptureFixture:
    """Whose `messages` are what the user is told."""
    caplog.set_level(logging.INFO, "lightning.pytorch.utilities.rank_zero")
    return caplog


@pytest.fixture
def few_generated(monkeypatch):
    monkeypatch.setattr(generated, "SIZES", {"train": 40, "test": 8})
