"""Small CSV files of texts."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from litlab.data import TextData

WORDS = [f"w{number}" for number in range(30)]


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["text", "label"], *rows])
    return path


def make_rows(count: int, seed: int = 0) -> list[list[str]]:
    """Rows of (text, label): good and bad reviews in turn, of 2 to 20 words; each starts with its
    number.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = "good" if number % 2 else "bad"
        words = rng.choice(WORDS, rng.integers(0, 19)).tolist()
        rows.append([" ".join([f"number{seed}x{number}", label, *words]), label])
    return rows


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """reviews.csv with 100 rows and a row of names, test.csv with 20."""
    write_csv(tmp_path / "test.csv", make_rows(20, seed=1))
    return write_csv(tmp_path / "reviews.csv", make_rows(100))


@pytest.fixture
def make_data(tmp_path: Path, reviews: Path) -> Callable[..., TextData]:
    """Makes data of the 100 reviews, if nothing else is said."""

    def make(**options) -> TextData:
        settings = {"path": str(reviews), "cache_dir": str(tmp_path / "cache"), "batch_size": 8}
        return TextData(**settings | options)

    return make


def strip(inputs) -> list[list[int]]:
    """The texts of a batch without padding."""
    return [[i for i in row if i] for row in inputs["ids"].tolist()]


def decode(data: TextData, ids: list[int]) -> list[str]:
    """The words, or pieces of words, that ids stand for."""
    return list(map(Tokenizer.from_str(data.metadata.tokenizer).id_to_token, ids))


def all_texts(data: TextData) -> dict[str, list[str]]:
    """The raw texts of each split."""
    return {
        split: [data.text(split, number) for number in range(size)]
        for split, size in data.sizes.items()
    }
