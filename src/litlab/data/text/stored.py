"""From raw texts to a cache of token ids, and back from there."""

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from litlab.data.cache import find_corruption, new_cache, open_array, read_meta
from litlab.data.split import partition
from litlab.data.text.sources import Corpus, Source
from litlab.data.text.tokenizer import Kind, encode, train_tokenizer

_VERSION = 1  # raise it when the arrays of the same source would come out different


@dataclass(frozen=True)
class Recipe:
    """How a corpus becomes token ids; see `TextData` for the settings."""

    source: Source
    kind: Kind
    vocab_size: int
    val_fraction: float
    test_fraction: float

    @property
    def cache_name(self) -> str:
        """Name of the cache of this recipe."""
        test_fraction = 0.0 if self.source.has_test else self.test_fraction
        settings = _VERSION, self.source.digest, self.kind, self.vocab_size, self.val_fraction, test_fraction
        return f"{self.source.name}-{hashlib.sha256(repr(settings).encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Stored:
    """The contents of a cache, mapped from its files.

    Args:
        folder: The cache.
        class_names: Name of each class.
        tokenizer: The tokenizer as JSON.
        splits: The splits that it holds.
        dropped: Number of bad rows that were left out of each file, by the split that it is for.
        notes: Lines that the user should see, likewise.
    """

    folder: Path
    class_names: list[str]
    tokenizer: str
    splits: list[str]
    dropped: dict[str, int]
    notes: dict[str, list[str]]

    def array(self, split: str, kind: str) -> np.ndarray:
        """Open one array.

        Args:
            split: "train", "val" or "test".
            kind: "ids", int32 of shape (tokens,); "offsets", int64 of shape (texts + 1,); "labels", int64 of shape
                (texts,).
        """
        return open_array(self.folder / f"{split}_{kind}.npy")

    def told(self, stage: str | None) -> list[str]:
        """Return the notes on the files that a stage ("fit", "validate" or "test"; None: all) uses."""
        split = "test" if stage == "test" else "train"
        of_file = split if split in self.dropped else "train"  # the test may be cut out of the training file
        return [note for name, own in self.notes.items() if not stage or name in (split, of_file) for note in own]

    def texts(self, split: str) -> list[str]:
        """All raw texts of a split."""
        content, offsets = self.array(split, "text").tobytes(), self.array(split, "text_offsets").tolist()
        return [content[a:b].decode("utf-8") for a, b in pairwise(offsets)]

    def text(self, split: str, index: int) -> str:
        """One raw text, by its number in a split."""
        start, end = self.array(split, "text_offsets")[index : index + 2].tolist()
        return self.array(split, "text")[start:end].tobytes().decode("utf-8")


def stored_classes(folder: Path) -> list[str] | None:
    """Names of the classes in a cache; None where there is no whole one."""
    return None if find_corruption(folder, quick=True) else read_meta(folder)["class_names"]


def store(recipe: Recipe, corpus: Corpus, folder: Path) -> None:
    """Split a corpus, train the tokenizer on what is left for training, and encode everything into the cache.

    Raises:
        UserError: The place of the cache is not writable, or full.
    """
    rows = partition(corpus.labels, recipe.val_fraction, recipe.test_fraction, seed=0)
    texts = {split: [corpus.texts[origin][i] for i in part.tolist()] for split, (origin, part) in rows.items()}
    labels = {split: corpus.labels[origin][part] for split, (origin, part) in rows.items()}
    notes = {split: list(lines) for split, lines in corpus.notes.items()}
    if notes and "test" in texts:  # the user's own files, who can do something about it
        known = set(texts["train"])
        shared = sum(text in known for text in texts["test"])
        if shared:
            notes.setdefault("test", []).append(
                f"warning: {shared:,} of {len(texts['test']):,} test texts are in the training texts too, word for "
                f"word, which makes the test easier than new texts are"
            )
    characters = sum(len(text) for own in texts.values() for text in own)
    with new_cache(folder, 2 * characters) as staging:
        tokenizer = train_tokenizer(texts["train"], recipe.kind, recipe.vocab_size)
        (staging / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        for split, own in texts.items():
            ids, offsets = encode(tokenizer, own)
            content = [text.encode("utf-8") for text in own]
            arrays = {
                "ids": ids,
                "offsets": offsets,
                "labels": labels[split].numpy(),
                "text": np.frombuffer(b"".join(content), np.uint8),
                "text_offsets": np.cumsum([0, *map(len, content)], dtype=np.int64),
            }
            for kind, array in arrays.items():
                np.save(staging / f"{split}_{kind}.npy", array)
        meta = {
            "name": recipe.source.name,
            "class_names": corpus.class_names,
            "splits": list(texts),
            "dropped": corpus.dropped,
            "notes": notes,
        }
        (staging / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


def load(folder: Path) -> Stored:
    """Open a cache.

    Raises:
        RuntimeError: It is not there, or not whole.
    """
    meta = read_meta(folder)
    tokenizer = (folder / "tokenizer.json").read_text("utf-8")
    # Caches from before rows could be dropped have none of the last two.
    return Stored(
        folder, meta["class_names"], tokenizer, meta["splits"], meta.get("dropped", {}), meta.get("notes", {})
    )
