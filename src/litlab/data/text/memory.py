"""Token ids of all texts in one array, from which whole batches are taken by their indices."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.sampler import EpochSampler
from litlab.util.splitmix import mix_array


class StoredTexts(Dataset[Any]):
    """Texts of one split; indexed by a tensor, it returns a padded batch.

    Args:
        ids: Ids of all texts one after the other, int32 of shape (tokens,).
        offsets: Where each text starts, int64 of shape (texts + 1,); the last entry is the number of tokens.
        labels: int64 of shape (texts,); None for texts to predict.
        max_tokens: Longest piece of a text that comes into a batch; None: texts come whole.
    """

    def __init__(
        self,
        ids: np.ndarray,
        offsets: np.ndarray,
        labels: np.ndarray | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.ids = torch.from_numpy(ids)
        self.starts = offsets[:-1]
        self.full_lengths = np.diff(offsets)
        self.lengths = self.full_lengths if max_tokens is None else np.minimum(self.full_lengths, max_tokens)
        self.labels = None if labels is None else torch.from_numpy(labels)
        self.crops: EpochSampler | None = None

    def crop_at_random(self, sampler: EpochSampler) -> None:
        """Cut texts that are too long somewhere, not always at the end: anew in every epoch of a sampler."""
        self.crops = sampler

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.lengths)

    def __getitem__(self, index: Tensor) -> Any:
        """Take a batch, by the numbers of the texts, int64 of shape (batch,), or these plus a multiple of their number.

        Returns:
            ``ids``, int64 of shape (batch, time), 0 where a text has ended, in a dict; with labels, that dict and int64
            (batch,).
        """
        drawn = index.numpy()
        rows = drawn % len(self)
        starts, lengths = self.starts[rows], self.lengths[rows]
        if self.crops is not None:
            starts = starts + crop_starts(self.crops, drawn, self.full_lengths[rows] - lengths)
        place = np.arange(lengths.max())
        inside = torch.from_numpy(place < lengths[:, None])
        source = torch.from_numpy(starts[:, None] + place).clamp_(max=len(self.ids) - 1)
        inputs = {"ids": self.ids[source].long().masked_fill_(~inside, 0)}
        return inputs if self.labels is None else (inputs, self.labels[rows])


def crop_starts(sampler: EpochSampler, numbers: np.ndarray, spare: np.ndarray) -> np.ndarray:
    """Choose where pieces of texts begin, by (seed, epoch, number) only, whatever batch a text is in.

    Args:
        sampler: Knows seed and epoch.
        numbers: Numbers of the texts, int64 of shape (texts,).
        spare: Tokens that each text is too long, int64 of shape (texts,).

    Returns:
        Tokens before each piece, from 0 to `spare`, int64 of shape (texts,).
    """
    value = numbers.astype(np.uint64) + np.uint64((sampler.seed * 1_000_003 + sampler.epoch) % 2**32 << 32)
    uniform = (mix_array(mix_array(value)) >> np.uint64(11)).astype(np.float64) / 2**53  # in [0, 1)
    return (uniform * (spare + 1)).astype(np.int64)
