"""Texts on their way into shards, and back: the token ids of whole texts, as bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from litlab.data.shards import Shards, write_about, write_split
from litlab.data.text.metadata import TextMetadata

_LENGTHS = "lengths"  # a folder beside those of the splits, with one sample: tokens of each text by split, as int32
_Encoded = tuple[np.ndarray, np.ndarray, np.ndarray]  # of a split: ids (tokens,), offsets (texts + 1,), labels (texts,)


def id_type(vocab_size: int) -> np.dtype:
    """Return how shards hold the ids of a vocabulary: as uint16 where all of them fit, else as int32."""
    return np.dtype("<u2" if vocab_size <= 2**16 else "<i4")


def write_text_shards(folder: Path, size: int, metadata: TextMetadata, splits: Mapping[str, _Encoded]) -> None:
    """Write texts into shards: those to train on in random order, as a file can be sorted by class.

    A sample has ``ids``, bytes of `id_type`, and a ``label``.

    Args:
        folder: The folder to fill.
        size: Bytes of a shard.
        metadata: Metadata of the texts. What a subclass adds is not written.
        splits: The texts of each split: ids, int32 of shape (tokens,); offsets, int64 of shape (texts + 1,); labels,
            int64 of shape (texts,).
    """
    kind = id_type(metadata.vocab_size)

    def samples(split: str, order: np.ndarray) -> Iterator[dict[str, bytes | int]]:
        ids, offsets, labels = splits[split]
        for place in order.tolist():
            text = ids[offsets[place] : offsets[place + 1]]
            yield {"ids": text.astype(kind).tobytes(), "label": int(labels[place])}

    written, lengths = {}, {}
    for split, (_, offsets, labels) in splits.items():
        count = len(labels)
        order = np.random.default_rng(0).permutation(count) if split == "train" else np.arange(count)
        written[split] = write_split(folder / split, samples(split, order), count, size)
        lengths[split] = np.diff(offsets)[order].astype("<i4").tobytes()
    beside = {_LENGTHS: write_split(folder / _LENGTHS, [lengths], 1, size)}
    known = {field.name: getattr(metadata, field.name) for field in fields(TextMetadata)}
    write_about(folder, {"kind": "texts", "metadata": known, "splits": written, "beside": beside})


def read_lengths(shards: Shards, split: str) -> np.ndarray:
    """Return the tokens of each text of a split, int64 of shape (texts,).

    Raises:
        LoaderError: They are missing, damaged or out of reach.
    """
    (lengths,) = shards.split(_LENGTHS).read(torch.tensor([0]))
    return np.frombuffer(lengths[split], "<i4").astype(np.int64)
