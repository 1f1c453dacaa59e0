"""DataLoaders of whole batches, which continue exactly where a checkpoint was written."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from litlab.data.sampler import EpochSampler
from litlab.errors import UserError
from litlab.types import NonNegativeInt, PositiveInt


class LoaderError(UserError):
    """A `UserError` of a data set: its one line survives the traceback that torch puts around errors of workers.

    Args:
        message: What is wrong, or torch's text around it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message.rpartition(f"{type(self).__name__}: ")[2].rstrip())


@dataclass(frozen=True)
class LoaderSettings:
    """Settings of the loaders, see `ExperimentData`.

    Raises:
        UserError: A setting needs workers that there are not.
    """

    num_workers: NonNegativeInt = 0
    pin_memory: bool | None = None
    persistent_workers: bool = False
    prefetch_factor: PositiveInt | None = None

    def __post_init__(self) -> None:
        for name in ("persistent_workers", "prefetch_factor"):
            if getattr(self, name) and not self.num_workers:
                raise UserError(f"data.{name}: there are no workers; set data.num_workers, or leave {name} out")

    def loader(self, samples: Any, sampler: EpochSampler, trainer: Trainer | None, seed: int) -> DataLoader[Any]:
        """Make a loader; where the trainer resumes an epoch, one that begins where that ended.

        Args:
            samples: Returns a batch for an index tensor; with an attribute `device` where it lies on one.
            sampler: Yields index tensors.
            trainer: The trainer, if there is one.
            seed: Seed of the loader's own generator.

        Raises:
            UserError: Worker processes are to read data that lies on an accelerator, or memory is to be pinned that no
                GPU reads.
        """
        in_host_memory = getattr(samples, "device", torch.device("cpu")).type == "cpu"
        if self.num_workers and not in_host_memory:
            raise UserError(
                f"data.num_workers: {self.num_workers} worker processes can't read data that lies on the accelerator, "
                "which is faster; set it to 0."
            )
        if sampler.train and trainer is not None and trainer.fit_loop.is_resuming:
            sampler.go_on_from(*_progress(trainer))
        device = "cpu" if trainer is None else trainer.strategy.root_device.type
        if self.pin_memory and (device == "cpu" or not in_host_memory):
            where = "on the accelerator already" if device != "cpu" else "used by the CPU"
            raise UserError(f"data.pin_memory: the batches are {where}; leave it out, or set it to null")
        if self.persistent_workers:
            sampler.share_epoch()
        # Gathering a batch from memory takes less than handing it over from a worker process.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # Lightning can't know that the sampler continues where the checkpoint was written.
        warnings.filterwarnings("ignore", ".*resuming from a checkpoint that ended before the epoch ended.*")
        return DataLoader(
            dataset=samples,
            sampler=sampler,
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=device == "cuda" and in_host_memory and self.pin_memory is not False,
            persistent_workers=self.persistent_workers,
            prefetch_factor=self.prefetch_factor,
            generator=torch.Generator().manual_seed(seed),  # else it draws from the global generator
        )


def _progress(trainer: Trainer) -> tuple[int, int]:
    """Epoch and batch that a resumed run continues with."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress
    if epochs.started == epochs.processed:  # the next epoch has not begun
        return epochs.processed, 0
    if batches.is_last_batch and batches.total.completed < batches.total.processed:
        return epochs.processed + 1, 0  # saved within the last batch: Lightning counts the epoch as complete
    return epochs.processed, batches.current.ready


def same_on_all_nodes(trainer: Trainer, generated: bool) -> bool:
    """Return whether the data is generated, as the first process has found.

    Args:
        trainer: The trainer; every process calls this.
        generated: Whether this process has found that it has to be.

    Raises:
        UserError: If the first process of another node has found the opposite.
    """
    everywhere = trainer.strategy.broadcast(generated)
    if trainer.world_size == 1:
        return everywhere
    other = trainer.local_rank == 0 and generated != everywhere
    if trainer.strategy.reduce_boolean_decision(other, all=False):
        raise UserError(
            "data: some nodes have the data, and others have not and would train on generated data; copy it to all of "
            "them, or let data.path and data.cache_dir be on a disk that all of them see"
        )
    return everywhere
