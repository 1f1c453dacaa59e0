"""Batches of samples of about the same length: little padding, in an order that is random all the same."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.sampler import EpochSampler

_GROWTH = 1.06  # of the grid that lengths are rounded up to: the most that padding costs inside one step of the grid


class LengthBatches(EpochSampler):
    """Batches of about the same length, for samples that are padded to the longest of a batch.

    - Training: lengths are rounded up to a grid that grows by 6 %. The samples are sorted by that, at random within a
      step of the grid, and cut into batches, which come in random order. Consecutive batches of the sorted order are
      the shares of the processes in one training step: none waits for another's longer texts. All processes have the
      same number of batches, the same in every epoch. What does not divide evenly is left out, at random; without
      `drop_last` batches are a little smaller instead, so that all samples come, except fewer than there are processes.
    - Evaluation: from the longest to the shortest sample, every one exactly once over all processes. All processes
      have the same number of batches, and none is empty. (A batch can then have one sample more.)

    Args:
        lengths: Length of each sample, int64 of shape (samples,), as the model gets it.
        batch_size: Samples per batch and process.
        tokens_per_batch: Instead of `batch_size` in training: padded tokens per batch and process, at most, except
            where a single sample is longer. Batches that not every process could get one of are left out.
        **options: As of `EpochSampler`. With `draw` lengths differ from epoch to epoch, so `tokens_per_batch` must be
            None.
    """

    def __init__(
        self, lengths: np.ndarray, batch_size: int, tokens_per_batch: int | None = None, **options: Any
    ) -> None:
        super().__init__(len(lengths), **options)
        self.lengths = lengths
        self.bounds = _round_up(lengths) if self.train else lengths
        self.batch_size = batch_size
        self._used = self.size  # samples of an epoch
        if self.train:
            self._starts = self._cut_to_size() if tokens_per_batch is None else self._cut_to_tokens(tokens_per_batch)

    def __len__(self) -> int:
        if self.train:
            return len(self._starts) // self.world_size
        smallest, largest = self.size // self.world_size, -(-self.size // self.world_size)
        return min(smallest, -(-largest // self.batch_size))

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        if not self.train:
            order = torch.from_numpy(np.argsort(-self.lengths, kind="stable"))
            yield from order[self.rank :: self.world_size].tensor_split(len(self))
            return
        generator = np.random.default_rng(self.epoch_seed)
        if self.draw is None:
            order = generator.permutation(self.size)
        else:
            order = self.draw(torch.Generator().manual_seed(self.epoch_seed)).numpy()
        order = order[: self._used]
        order = order[np.argsort(-self.bounds[order % self.size], kind="stable")]

        ends = np.append(self._starts[1:], len(order))
        used = np.arange(len(self._starts))
        if spare := len(used) % self.world_size:  # batches that not every process could get one of
            used = np.sort(generator.permutation(used)[spare:])
        steps = used.reshape(-1, self.world_size)
        for batch in generator.permutation(steps)[:, self.rank]:
            yield torch.from_numpy(order[self._starts[batch] : ends[batch]])

    def _cut_to_size(self) -> np.ndarray:
        """Return where each batch of all processes begins in the sorted order."""
        batch_size = min(self.batch_size, self.size // self.world_size)
        steps, rest = divmod(self.size, batch_size * self.world_size)
        if self.drop_last or rest < self.world_size:
            self._used -= rest
        else:
            steps += 1
        count = steps * self.world_size
        return np.arange(count) * self._used // count

    def _cut_to_tokens(self, tokens_per_batch: int) -> np.ndarray:
        """Return the same for batches of so many tokens at most."""
        longest_first = np.sort(self.bounds)[::-1]
        starts, start = [], 0
        while start < self.size:
            starts.append(start)
            start += max(1, tokens_per_batch // int(longest_first[start]))
        return np.array(starts)


def _round_up(lengths: np.ndarray) -> np.ndarray:
    """Round lengths up to the grid, though never above the longest."""
    steps = np.ceil(np.log(lengths) / np.log(_GROWTH))
    return np.minimum((_GROWTH**steps).astype(np.int64), lengths.max())
