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
      have the same number of batches, and none is empty. (The last but one can pass one sample on for that.)

    Args:
        lengths: Length of each sample, int64 of shape (samples,), as the model gets it.
        batch_size: Samples per batch and process.
        tokens_per_batch: Instead of `batch_size`: padded tokens per batch and process, at most, except where a single
            sample is longer.
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
        self.tokens_per_batch = tokens_per_batch
        self._used = self.size  # samples of an epoch
        self._starts = self._cut_training() if self.train else self._cut_evaluation()

    def __len__(self) -> int:
        return len(self._starts) // self.world_size if self.train else len(self._starts)

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        if not self.train:
            share = torch.from_numpy(_sort_descending(self.lengths)[self.rank :: self.world_size].copy())
            yield from share.tensor_split(self._starts[1:].tolist())
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

    def _cut_training(self) -> np.ndarray:
        """Return where each batch of all processes begins in the sorted order."""
        if self.tokens_per_batch is None:
            batch_size = min(self.batch_size, self.size // self.world_size)
            steps, rest = divmod(self.size, batch_size * self.world_size)
            if self.drop_last or rest < self.world_size:
                self._used -= rest
            else:
                steps += 1
            count = steps * self.world_size
            return np.arange(count) * self._used // count
        starts = self._cut(self.bounds[_sort_descending(self.bounds)])
        while len(starts) < self.world_size or (len(starts) % self.world_size and not self.drop_last):
            sizes = np.diff([*starts, self.size])  # halve the largest batch until each process gets as many
            widest = int(sizes.argmax())
            if sizes[widest] == 1:
                break
            starts = np.insert(starts, widest + 1, starts[widest] + sizes[widest] // 2)
        return starts

    def _cut_evaluation(self) -> np.ndarray:
        """Return where each batch begins in the share of a process, such that it suits the longest share, the first."""
        share = self.lengths[_sort_descending(self.lengths)][:: self.world_size]
        starts = self._cut(share)
        # The shares of later processes can be one shorter: their last batch must not be empty then.
        if self.size % self.world_size and len(starts) > 1 and starts[-1] == len(share) - 1:
            starts[-1] -= 1
            starts = np.unique(starts)
        return starts

    def _cut(self, lengths: np.ndarray) -> np.ndarray:
        """Return where to begin batches of samples that are sorted from long to short."""
        if self.tokens_per_batch is None:
            return np.arange(0, len(lengths), self.batch_size)
        starts, start = [], 0
        while start < len(lengths):
            starts.append(start)
            start += max(1, self.tokens_per_batch // int(lengths[start]))
        return np.array(starts)


def _sort_descending(lengths: np.ndarray) -> np.ndarray:
    """Return the numbers of the samples from long to short."""
    return np.argsort(-lengths, kind="stable")


def _round_up(lengths: np.ndarray) -> np.ndarray:
    """Round lengths up to the grid, though never above the longest."""
    longest = int(lengths.max())
    grid = [1]
    while grid[-1] < longest:
        grid.append(max(grid[-1] + 1, int(grid[-1] * _GROWTH)))
    steps = np.array(grid)
    return np.minimum(steps[np.searchsorted(steps, lengths)], longest)
