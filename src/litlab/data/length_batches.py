"""Batches of samples of about the same length: little padding, in an order that is random all the same."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.sampler import EpochBatches

_GROWTH = 1.06  # of the grid that lengths are rounded up to: the most that padding costs inside one step of the grid


class LengthBatches(EpochBatches):
    """Batches of about the same length, for samples that are padded to the longest of a batch.

    - Training: lengths are rounded up to a grid that grows by 6 %. The samples are sorted by that, at random within a
      step of the grid, and cut into batches, which come in random order. What does not divide evenly is left out, at
      random; without `drop_last` batches are a little smaller instead, so that all samples come, except fewer than
      there are processes.
    - Evaluation: from the longest to the shortest sample, every one exactly once over all processes.

    Consecutive batches of the sorted order are the shares of the processes in one step: none waits for another's longer
    samples.

    The number of batches is that of `EpochBatches`.

    Args:
        lengths: Length of each sample, int64 of shape (samples,), as the model gets it.
        batch_size: Samples per batch and process.
        **options: As of `EpochSampler`.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, **options: Any) -> None:
        super().__init__(len(lengths), batch_size, **options)
        self.lengths = torch.from_numpy(lengths)

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        steps, processes, lengths = len(self), self.world_size, self.lengths
        order, turns = torch.arange(self.size), range(steps)
        if self.train:
            generator = self.make_generator()
            order = self.draw_order(generator)
            most = min(self.size, steps * self.batch_size * processes)
            order = order[: most // processes * processes]
            turns = torch.randperm(steps, generator=generator).tolist()
            lengths = (lengths.log() / math.log(_GROWTH)).ceil()

        longest_first = order[lengths[order % self.size].argsort(descending=True, stable=True)]
        batches = longest_first.tensor_split(steps * processes)
        for turn in turns:
            yield batches[turn * processes + self.rank]
