"""Data of a small CSV file of texts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from litlab.data import TextData


@pytest.fixture
def make_data(texts: Path) -> Callable[..., TextData]:
    """Makes data of the 160 texts, if nothing else is said."""

    def make(**options) -> TextData:
        settings = {"path": texts, "batch_size": 8}
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
