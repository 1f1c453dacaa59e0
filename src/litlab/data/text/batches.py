"""Tokenised texts of a split, in padded batches."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.draws import uniform
from litlab.data.text.serving import TextMetadata


class TokenizedTexts(Dataset[Any]):
    """Texts of one split; indexed by a tensor, it returns a padded batch.

    It says how many texts are too long to be read as a whole.

    Args:
        tokens: ``lengths`` and ``ids``, as `encode` returns them, and perhaps ``labels``, int64 of
            shape (texts,).
        metadata: What is known of the texts.
        split: The split, or "predict".
    """

    # Of the loader that has this copy: in training, its epochs choose a piece of longer texts
    sampler: Any = None

    def __init__(self, tokens: Mapping[str, Any], metadata: TextMetadata, split: str) -> None:
        self.tokens, lengths = tokens, tokens["lengths"]
        self.both_ends, self.padding = metadata.both_ends, metadata.padding
        self.most = metadata.max_tokens if split == "train" else metadata.longest
        self.whole = lengths  # of the texts, of which `lengths` are read
        self.begins = lengths.cumsum(0) - lengths  # where each begins in the flat ids
        self.lengths = lengths.clamp(max=self.most).numpy()  # by which batches are made
        longer = int((lengths > metadata.max_tokens).sum())
        if longer:
            rank_zero_info(
                f"longer than data.max_tokens ({metadata.max_tokens}): {longer:,} of "
                f"{len(lengths):,} {split} texts; data.long_texts is {metadata.long_texts}"
            )

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Tensor) -> Any:
        """Take a batch, by the numbers of the texts, int64 of shape (batch,), or these plus a
        multiple of their number.

        Returns:
            A dict with ``ids``, int64 of shape (batch, time), padding where a text has ended; with
            labels, that dict and int64 (batch,).
        """
        # All of shape (batch, 1) but `steps`, (time,), which together make (batch, time)
        numbers = index % len(self)
        whole = self.whole[numbers]
        lengths = whole.clamp(max=self.most)[:, None]
        surplus = whole[:, None] - lengths  # tokens that are not read
        steps = torch.arange(int(lengths.max()))

        # A piece from anywhere in training, or beginning and end; else the beginning
        skipped = torch.zeros_like(surplus)
        if self.both_ends and getattr(self.sampler, "train", False):
            (draws,) = uniform(index, self.sampler.seed, self.sampler.epoch, "piece")
            skipped = (draws[:, None] * (surplus + 1)).long()
        elif self.both_ends:
            # The second half is read from where as many tokens are left
            skipped = surplus * (steps >= self.most // 2)

        # Behind the end of a text these are ids of the next one, which padding replaces; behind the
        # last text there are none
        positions = self.begins[numbers, None] + skipped + steps
        ids = self.tokens["ids"][positions.clamp(max=len(self.tokens["ids"]) - 1)].long()
        inputs = {"ids": ids.masked_fill(steps >= lengths, self.padding)}
        return (inputs, self.tokens["labels"][numbers]) if "labels" in self.tokens else inputs
