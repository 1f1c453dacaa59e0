"""Batches of samples that lie in shards: random, and yet few shards are read at a time."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
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
    shares can't be cut otherwise, a batch has one sample more.)

    Args:
        shards: Number of samples in each shard.
        batch_size: Samples per batch and process, at most.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads from more files at once.
        **options: As of `EpochSampler`.
    """

    def __init__(self, shards: Sequence[int], batch_size: int, shuffle_shards: int, **options: Any) -> None:
        super().__init__(sum(shards), **options)
        self.shards = torch.tensor(shards)
        self.starts = self.shards.cumsum(0) - self.shards
        self.batch_size = batch_size
        self.shuffle_shards = shuffle_shards

    def __len__(self) -> int:
        """Return the number of batches of this process, the same on all of them."""
        smallest, largest = self.size // self.world_size, -(-self.size // self.world_size)
        return min(smallest, -(-largest // self.batch_size))

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        begin, end = (self.size * rank // self.world_size for rank in (self.rank, self.rank + 1))
        cuts = [(end - begin) * number // len(self) for number in range(len(self) + 1)]
        waiting = torch.empty(0, dtype=torch.int64)
        blocks = self._blocks(begin, end)
        for size in (after - before for before, after in pairwise(cuts)):
            while len(waiting) < size:
                waiting = torch.cat([waiting, next(blocks)])
            yield waiting[:size]
            waiting = waiting[size:]

    def _blocks(self, begin: int, end: int) -> Iterator[Tensor]:
        """Yield the samples from `begin` to `end` of the epoch's sequence of shards, some shards at a time."""
        generator = torch.Generator().manual_seed(self.epoch_seed)
        order = torch.randperm(len(self.shards), generator=generator) if self.train else torch.arange(len(self.shards))
        generator.manual_seed(int(torch.randint(2**62, (self.world_size,), generator=generator)[self.rank]))
        block: list[Tensor] = []
        place = 0  # of the shard in the sequence
        for shard in order.tolist():
            size = int(self.shards[shard])
            first, last = max(begin - place, 0), min(end - place, size)
            place += size
            if first >= last:
                continue
            block.append(self.starts[shard] + torch.arange(first, last))
            if len(block) == self.shuffle_shards:
                yield self._shuffled(block, generator)
                block = []
        if block:
            yield self._shuffled(block, generator)

    def _shuffled(self, block: list[Tensor], generator: torch.Generator) -> Tensor:
        samples = torch.cat(block)
        return samples[torch.randperm(len(samples), generator=generator)] if self.train else samples
