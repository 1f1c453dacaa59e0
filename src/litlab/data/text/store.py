"""Token ids of all texts as flat arrays: written once into a cache, from which batches are taken."""

import random
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.utils.data import Dataset

from litlab.data.frames import Frame
from litlab.data.sampler import EpochSampler
from litlab.data.split import SPLITS
from litlab.data.text.serving import ends_of
from litlab.data.text.tokenizer import Kind, encode, train_tokenizer

Read = Callable[[Tensor], tuple[list[Tensor], Tensor | None]]


def store_corpus(folder: Path, class_names: list[str], corpus: Frame, kind: Kind, vocab_size: int) -> None:
    """Train the tokenizer, and write everything into a cache.

    Args:
        folder: The cache.
        class_names: Name of each class, in the order of the labels.
        corpus: The texts: a frame with columns ``text``, ``label`` and ``split``.
        kind: Kind of the tokenizer.
        vocab_size: Most entries of its vocabulary.
    """
    texts = {split: corpus["text"][corpus["split"] == split].tolist() for split in SPLITS}
    texts = {split: some for split, some in texts.items() if some}
    tokenizer = train_tokenizer(texts["train"], kind, vocab_size)
    splits = {}
    for split, some in texts.items():
        ids, offsets = encode(tokenizer, some)
        labels = torch.tensor(corpus["label"][corpus["split"] == split].tolist())
        splits[split] = {"ids": ids, "offsets": offsets, "labels": labels}
    torch.save({"class_names": class_names, "tokenizer": tokenizer, "splits": splits}, folder / "tokens.pt")
    torch.save(texts, folder / "texts.pt")

    copies = set(texts["train"]).intersection(texts.get("test", []))
    if copies:
        rank_zero_info(
            f"warning: {len(copies):,} test texts are training texts too, so results look better than they are"
        )


def read_tokens(folder: Path) -> dict[str, Any]:
    """Open a cache: ``class_names``; ``tokenizer``; and for each of ``splits`` tensors that are mapped into memory.

    These are ``ids``, int32 of shape (tokens,); ``offsets``, where each text starts and the last ends, int64 of shape
    (texts + 1,); and ``labels``, int64 of shape (texts,).
    """
    return torch.load(folder / "tokens.pt", mmap=True, weights_only=True)


@lru_cache(1)
def read_texts(folder: Path) -> dict[str, list[str]]:
    """Read the raw texts of each split in a cache."""
    return torch.load(folder / "texts.pt", weights_only=True)


class TokenizedTexts(Dataset[Any]):
    """Texts of one split; indexed by a tensor, it returns a padded batch.

    Args:
        read: Returns the token ids of some texts, by their numbers, int64 of shape (some,); and their labels, int64 of
            shape (some,), or None.
        lengths: Tokens of each text, int64 of shape (texts,).
        most: Most tokens of a text in a batch.
        both_ends: Whether a longer text loses its middle; else it is cut to its beginning.
    """

    sampler: EpochSampler | None = None  # whose epochs choose a piece of each longer text, instead of its beginning

    def __init__(self, read: Read, lengths: Tensor, most: int, both_ends: bool = False) -> None:
        self.read = read
        self.lengths = lengths.clamp(max=most).numpy()
        self.most = most
        self.both_ends = both_ends

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Tensor) -> Any:
        """Take a batch, by the numbers of the texts, int64 of shape (batch,), or these plus a multiple of their number.

        Returns:
            A dict with ``ids``, int64 of shape (batch, time), 0 where a text has ended; with labels, that dict and
            int64 (batch,).
        """
        texts, labels = self.read(index % len(self))
        pieces = [self._cut(ids, number) for ids, number in zip(texts, index.tolist(), strict=True)]
        inputs = {"ids": nn.utils.rnn.pad_sequence(pieces, batch_first=True).long()}
        return inputs if labels is None else (inputs, labels)

    def _cut(self, ids: Tensor, number: int) -> Tensor:
        spare = len(ids) - self.most
        if spare <= 0:
            return ids
        if self.both_ends:
            return ends_of(ids, self.most)
        start = 0
        if self.sampler is not None:
            start = random.Random(f"{self.sampler.seed} {self.sampler.epoch} {number}").randint(0, spare)
        return ids[start : start + self.most]


def read_flat(
    ids: Tensor, offsets: Tensor, labels: Tensor | None, numbers: Tensor
) -> tuple[list[Tensor], Tensor | None]:
    """Read texts in memory, or mapped into it, as `TokenizedTexts` asks for them."""
    bounds = zip(offsets[numbers].tolist(), offsets[numbers + 1].tolist(), strict=True)
    return [ids[start:end] for start, end in bounds], None if labels is None else labels[numbers]
