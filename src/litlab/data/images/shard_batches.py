"""Batches of samples that lie in shards: random, and yet few shards are read at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from litlab.data.sampler import EpochSampler


class ShardBatches(EpochSampler):
    """Batches that read shard after shard, in an order that depends on nothing but (seed, epoch).

    - Training: the shards come in random order, one behind the other, and each process gets an equal share of that, so
      it reads its own shards and at most two that it shares with others. Of every `shuffle_shards` of them the samples
      are shuffled together.
    - Evaluation: the natural order.

    Every sample comes exactly once over all processes, whatever the numbers of shards, processes and workers. All
    processes have the same number of batches, of sizes that differ by one at most, and none is empty: no batch of an
    epoch is incomplete, but batches can be a little smaller than `batch_size`, so that they come out even. (Where the
    shares can't be cut otherwise, a batch has one sample more.) So there is nothing that `drop_last` could drop.

    Args:
        shards: Number of samples in each shard.
        batch_size: Samples per batch and process, at most.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads from more files at once.
        **options: As of `EpochSampler`.
    """

    def __init__(self, shards: Sequence[int], batch_size: int, shuffle_shards: int, **options: Any) -> None:
        super().__init__(sum(shards), batch_size, **options)
        self.shards = list(shards)
        self.shuffle_shards = shuffle_shards

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        generator, turns = self.make_generator(), torch.arange(len(self.shards))
        order = torch.randperm(len(turns), generator=generator) if self.train else turns

        # The share of this process in the epoch's sequence of shards, and the turn of each sample's shard in it.
        begin, end = (self.size * rank // self.world_size for rank in (self.rank, self.rank + 1))
        shards = torch.arange(self.size).split(self.shards)
        samples = torch.cat([shards[shard] for shard in order])[begin:end]
        turns = turns.repeat_interleave(torch.tensor(self.shards)[order])[begin:end]

        if self.train:
            block = (turns - turns[0]) // self.shuffle_shards
            keys = block + torch.rand(len(block), generator=generator, dtype=torch.float64)
            samples = samples[keys.argsort()]
        yield from samples.tensor_split(len(self))
