"""Token ids of all texts as flat arrays: written once into a cache, from which whole batches are taken."""

import json
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.sampler import EpochSampler
from litlab.data.split import SPLITS, split_samples
from litlab.data.store import open_array
from litlab.data.text.reading import Corpus
from litlab.data.text.tokenizer import Kind, encode, train_tokenizer
from litlab.util.splitmix import mix_array

_ABOUT = "about.json"


def store_corpus(
    folder: Path,
    corpus: Corpus,
    kind: Kind,
    vocab_size: int,
    val_fraction: float,
    test_fraction: float,
    fold: str | None,
) -> None:
    """Split a corpus, train the tokenizer on what is left for training, and write everything into a cache.

    Args:
        folder: The cache.
        corpus: The raw texts.
        kind: Kind of the tokenizer.
        vocab_size: Most entries of its vocabulary.
        val_fraction: As of `split_samples`, like the next two.
        test_fraction: Likewise.
        fold: Likewise.
    """
    texts = np.array(list(chain(*corpus.texts.values())), object)
    labels = np.array(list(chain(*corpus.labels.values())), np.int64)
    given = np.repeat(list(corpus.texts), [len(part) for part in corpus.texts.values()])
    split = split_samples(given, val_fraction, test_fraction, labels=labels, fold=fold)
    parts = {name: texts[split == name].tolist() for name in SPLITS if name in split}

    tokenizer = train_tokenizer(parts["train"], kind, vocab_size)
    for name, part in parts.items():
        ids, offsets = encode(tokenizer, part)
        np.save(folder / f"{name}_ids.npy", ids)
        np.save(folder / f"{name}_offsets.npy", offsets)
        np.save(folder / f"{name}_labels.npy", labels[split == name])
        (folder / f"{name}_texts.json").write_text(json.dumps(part), "utf-8")
    known = set(parts["train"])
    about = {
        "class_names": corpus.class_names,
        "tokenizer": tokenizer,
        "sizes": {name: len(part) for name, part in parts.items()},
        "copies": sum(text in known for text in parts.get("test", [])),
    }
    (folder / _ABOUT).write_text(json.dumps(about), "utf-8")


def read_about(folder: Path) -> dict[str, Any]:
    """Return what is known of a cache: ``class_names``, ``tokenizer``, ``sizes``, and ``copies`` in the test."""
    return json.loads((folder / _ABOUT).read_text("utf-8"))


def open_part(folder: Path, split: str, name: str) -> np.ndarray:
    """Open an array of a split in a cache.

    Args:
        folder: The cache.
        split: "train", "val" or "test".
        name: "ids", int32 of shape (tokens,); "offsets", int64 of shape (texts + 1,); or "labels", int64 of shape
            (texts,).
    """
    return open_array(folder / f"{split}_{name}.npy")


@lru_cache(1)
def read_split(folder: Path, split: str) -> list[str]:
    """Read the raw texts of a split in a cache."""
    return json.loads((folder / f"{split}_texts.json").read_text("utf-8"))


class TokenizedTexts(Dataset[Any]):
    """Texts of one split; indexed by a tensor, it returns a padded batch.

    Args:
        take: Returns for the numbers of texts, int64 of shape (batch,): ids in which they are, of shape (tokens,);
            where each starts there, int64 of shape (batch,); and their labels, int64 of shape (batch,), or None.
        lengths: Tokens of each text, int64 of shape (texts,).
        max_tokens: Longest piece of a text that comes into a batch; None: texts come whole.
    """

    def __init__(
        self,
        take: Callable[[np.ndarray], tuple[Tensor, np.ndarray, Tensor | None]],
        lengths: np.ndarray,
        max_tokens: int | None = None,
    ) -> None:
        self.take = take
        self.full_lengths = lengths
        self.lengths = lengths if max_tokens is None else np.minimum(lengths, max_tokens)
        self.sampler: EpochSampler | None = None  # whose epochs choose a piece of each text; None: its beginning

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Tensor) -> Any:
        """Take a batch, by the numbers of the texts, int64 of shape (batch,), or these plus a multiple of their number.

        Returns:
            A dict with ``ids``, int64 of shape (batch, time), 0 where a text has ended; with labels, that dict and
            int64 (batch,).
        """
        numbers = index.numpy()
        rows = numbers % len(self)
        ids, starts, labels = self.take(rows)
        lengths = self.lengths[rows]
        if self.sampler is not None:
            starts = starts + _draw_starts(self.sampler, numbers, self.full_lengths[rows] - lengths)
        place = np.arange(lengths.max())
        is_inside = torch.from_numpy(place < lengths[:, None])
        source = torch.from_numpy(starts[:, None] + place).clamp_(max=len(ids) - 1)
        inputs = {"ids": ids[source].long().masked_fill_(~is_inside, 0)}
        return inputs if labels is None else (inputs, labels)


def gather_texts(ids: np.ndarray, offsets: np.ndarray, labels: Tensor | None, max_tokens: int | None) -> TokenizedTexts:
    """Make a data set of texts in memory, or mapped into it; ids and offsets as of `open_part`."""
    return TokenizedTexts(partial(_take, torch.from_numpy(ids), offsets, labels), np.diff(offsets), max_tokens)


def _take(
    ids: Tensor, offsets: np.ndarray, labels: Tensor | None, rows: np.ndarray
) -> tuple[Tensor, np.ndarray, Tensor | None]:
    return ids, offsets[rows], None if labels is None else labels[rows]


def _draw_starts(sampler: EpochSampler, numbers: np.ndarray, spare: np.ndarray) -> np.ndarray:
    """Draw where pieces of texts begin, by (seed, epoch, number) only, whatever batch a text is in.

    Args:
        sampler: Knows seed and epoch.
        numbers: Numbers of the texts, int64 of shape (texts,).
        spare: Tokens that each text is too long, int64 of shape (texts,).

    Returns:
        Tokens before each piece, from 0 to `spare`, int64 of shape (texts,).
    """
    value = numbers.astype(np.uint64) + np.uint64(sampler.epoch_seed % 2**32 << 32)
    uniform = (mix_array(mix_array(value)) >> np.uint64(11)).astype(np.float64) / 2**53  # in [0, 1)
    return (uniform * (spare + 1)).astype(np.int64)
