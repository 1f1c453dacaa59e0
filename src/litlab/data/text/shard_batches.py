"""Batches of texts in shards: of about the same length, and yet few shards are read at a time."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.shard_batches import ShardBatches

_POOL = 50  # batches that are put together anew: fewer are more random, more have less padding


class TextShardBatches(ShardBatches):
    """The batches of `ShardBatches`, 50 at a time sorted by length.

    Consecutive batches of an epoch make a pool. The texts of a pool are sorted by length and cut into batches of the
    sizes they had, which come in random order in training. So all that `ShardBatches` says of an epoch holds here, too.

    Args:
        lengths: Length of each text, int64 of shape (texts,), as the model gets it.
        shards: Number of texts in each shard.
        batch_size: Texts per batch and process, at most.
        shuffle_shards: As of `ShardBatches`.
        **options: As of `EpochSampler`.
    """

    def __init__(
        self, lengths: np.ndarray, shards: Sequence[int], batch_size: int, shuffle_shards: int, **options: Any
    ) -> None:
        super().__init__(shards, batch_size, shuffle_shards, **options)
        self.lengths = torch.from_numpy(lengths)

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        # The same on all processes: their batches of a training step are equally far down their pools, so none waits
        # for another's longer texts.
        generator = torch.Generator().manual_seed(self.epoch_seed)
        batches = super().batches()
        while pool := list(islice(batches, _POOL)):
            texts = torch.cat(pool)
            texts = texts[self.lengths[texts].argsort(descending=True, stable=True)]
            parts = texts.split([len(batch) for batch in pool])
            order = torch.randperm(len(pool), generator=generator) if self.train else torch.arange(len(pool))
            yield from (parts[place] for place in order.tolist())
