"""Which samples make up which batch: the order of an epoch, shared out over the processes of a
run.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import SequentialSampler

from litlab.errors import UserError
from litlab.util.text import plural


@dataclass(eq=False)
class EpochSampler(SequentialSampler, ABC):
    """Yields one index tensor per batch, for a dataset that gathers a whole batch at once.

    Pass it as ``sampler=`` with ``batch_size=None``, and ``use_distributed_sampler=False`` to the
    trainer. The order depends on nothing but (seed, epoch), never on a global random state: a
    resumed run repeats it.

    Args:
        size: Number of samples.
        batch_size: Samples per batch and process.
        train: True for the training order, False for evaluation.
        seed: Seed of the order.
        rank: Number of this process.
        world_size: Number of processes.
        repeat: Whether every epoch has the order of the first, as for overfitting some batches on
            purpose.
        drop_last: Whether what does not fill a batch of training on all processes is left out.
        name: What the samples are, for the error message.
        draw: Chooses the samples of a training epoch, as many as there are, and their order, such
            as `draw_samples`; None: all of them, at random.

    Raises:
        UserError: There are fewer samples than processes.
    """

    size: int
    batch_size: int
    train: bool = False
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    repeat: bool = False
    drop_last: bool = True
    name: str = "data"
    draw: Callable[[torch.Generator], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.size < self.world_size:
            raise UserError(
                f"{self.name}: {plural(self.size, 'sample')} can't be shared by {self.world_size} "
                "processes; use fewer (--trainer.devices)"
            )
        # Lightning's `overfit_batches` replaces every other class of sampler by one that yields
        # single numbers.
        super().__init__(range(self.size))
        self._epoch = torch.tensor(0)  # a tensor, since it may lie in shared memory
        self._resumed = 0, 0  # epoch, and how many of its batches are left out

    def set_epoch(self, epoch: int) -> None:
        """Choose the order. Lightning calls this at the start of every epoch, numbered from 0."""
        # Batches are left out of the interrupted epoch alone; the next one begins at the start
        if epoch != self._resumed[0]:
            self._resumed = epoch, 0
        self._epoch.fill_(0 if self.repeat else epoch)

    @property
    def epoch(self) -> int:
        """Number of the epoch whose order is yielded."""
        return int(self._epoch)

    def share_epoch(self) -> None:
        """Let copies of this sampler in other processes follow its epoch: data sets that draw ask
        for it.
        """
        self._epoch.share_memory_()

    def go_on_from(self, epoch: int, batch: int) -> None:
        """Begin in the middle: leave out the batches of an epoch, up to `batch`, that an
        interrupted run has had.
        """
        self._resumed = epoch, batch
        self.set_epoch(epoch)

    def __iter__(self) -> Iterator[Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Yield int64 tensors of shape (batch,)."""
        # Nothing is forgotten here: Lightning and loaders with workers make iterators that nobody
        # asks for a batch.
        return islice(self.batches(), self._resumed[1], None)

    def make_generator(self) -> torch.Generator:
        """Return a generator for (seed, epoch); a sum would make epoch 1 of seed 0 the same as
        epoch 0 of seed 1.
        """
        return torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)

    def draw_order(self, generator: torch.Generator) -> Tensor:
        """Return the samples of a training epoch, int64 of shape (samples,)."""
        return (
            torch.randperm(self.size, generator=generator)
            if self.draw is None
            else self.draw(generator)
        )

    def __len__(self) -> int:
        """Return the number of batches of this process, the same on all: each sample comes once, no
        batch is empty.
        """
        # Shares differ by one sample at most. As many batches as the largest share needs, but no
        # more than the smallest one has samples; -(-a // b) rounds up
        smallest, largest = self.size // self.world_size, -(-self.size // self.world_size)
        return min(smallest, -(-largest // self.batch_size))

    @abstractmethod
    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""


class EpochBatches(EpochSampler):
    """Batches of one size, in random order for training.

    - Training: a new permutation each epoch. Batch ``b`` of all processes together is one slice of
      it, so the global batches do not depend on how many processes share them. The incomplete last
      batch is dropped, except where it is the only one; without `drop_last` the processes share it,
      where each gets a sample.
    - Evaluation: the natural order. Every sample comes exactly once over all processes, without
      padding. All processes have the same number of batches, of sizes that differ by one at most,
      and none is empty. (A batch can then exceed ``batch_size`` by one, where the shares can't be
      cut otherwise.)
    """

    def __len__(self) -> int:
        """Return the number of batches of this process, the same on all of them."""
        if not self.train:
            return super().__len__()
        # An incomplete last batch counts where each process gets a sample of it, or where it is all
        # there is
        whole, rest = divmod(self.size, self.batch_size * self.world_size)
        return max(1, whole + (not self.drop_last and rest >= self.world_size))

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        if not self.train:
            # Consecutive samples for each process, cut into batches as even as can be
            share = torch.arange(self.size).tensor_split(self.world_size)[self.rank]
            yield from share.tensor_split(len(self))
            return
        # All processes draw the same order, and each takes its slice of every global batch
        order = self.draw_order(self.make_generator())
        for batch in order.split(self.batch_size * self.world_size)[: len(self)]:
            per_rank = len(batch) // self.world_size
            yield batch[self.rank * per_rank : (self.rank + 1) * per_rank]


# From one length of the grid that lengths are rounded up to, to the next: a text of 100 tokens is
# padded to 106 at most. A finer grid would leave less to chance, a coarser one pad more
_GROWTH = 1.06


class LengthBatches(EpochBatches):
    """Batches of about the same length, for samples that are padded to the longest of a batch.

    - Training: lengths are rounded up to a grid that grows by 6 %. The samples are sorted by that,
      at random within a step of the grid, and cut into batches, which come in random order. What
      does not divide evenly is left out, at random; without `drop_last` batches are a little
      smaller instead, so that all samples come, except fewer than there are processes.
    - Evaluation: from the longest to the shortest sample, every one exactly once over all
      processes.

    Consecutive batches of the sorted order are the shares of the processes in one step: none waits
    for another's longer samples.

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
        # Evaluation: all samples, by their exact lengths, the longest batch first
        steps, processes, lengths = len(self), self.world_size, self.lengths
        order, positions = torch.arange(self.size), range(steps)

        # Training: a random order, less what does not divide evenly, by rounded lengths
        if self.train:
            generator = self.make_generator()
            order = self.draw_order(generator)
            count = min(self.size, steps * self.batch_size * processes)
            order = order[: count // processes * processes]
            positions = torch.randperm(steps, generator=generator).tolist()
            lengths = (lengths.log() / math.log(_GROWTH)).ceil()

        # A stable sort keeps the random order of samples whose rounded lengths are the same. With
        # `draw`, a number may be that of a sample plus a multiple of their count
        longest_first = order[lengths[order % self.size].argsort(descending=True, stable=True)]
        # One batch for each step and process, those of a step side by side
        batches = longest_first.tensor_split(steps * processes)
        for position in positions:
            yield batches[position * processes + self.rank]
