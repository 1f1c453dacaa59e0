"""What the DataModules do alike."""

import os
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from litlab.data.sampler import EpochSampler
from litlab.errors import UserError


class ExperimentData(LightningDataModule):
    """A DataModule whose batches are gathered as a whole, in an order of its own, which a resumed run goes on with.

    Subclasses set `seed`, and pass on the settings of their loaders.

    Args:
        num_workers: Processes that prepare batches; 0: the training process does, which is faster for data in memory.
        pin_memory: Whether batches are copied to page-locked memory on their way to a GPU; null: where there is one.
        persistent_workers: Whether the processes stay from one epoch to the next, instead of being started anew.
        prefetch_factor: Batches that each process prepares ahead; null: 2.

    Raises:
        UserError: A value is out of range, or needs workers that there are not.
    """

    seed: int
    predict_input: str | None = None

    def __init__(
        self,
        num_workers: int = 0,
        pin_memory: bool | None = None,
        persistent_workers: bool = False,
        prefetch_factor: int | None = None,
    ) -> None:
        super().__init__()
        if num_workers < 0:
            raise UserError(f"data.num_workers: {num_workers} is not valid; it must be at least 0")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise UserError(f"data.prefetch_factor: {prefetch_factor} is not valid; it must be at least 1")
        for name, value in (("persistent_workers", persistent_workers), ("prefetch_factor", prefetch_factor)):
            if value and not num_workers:
                raise UserError(f"data.{name}: there are no workers; set data.num_workers, or leave {name} out")
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.persistent_workers = persistent_workers
        self.prefetch_factor = prefetch_factor

    def sampler_options(self, split: str, what: str) -> dict[str, Any]:
        """What every `EpochSampler` needs to know of the run.

        Args:
            split: "train", "val", "test" or "predict".
            what: What the samples are, for the error message.
        """
        trainer = self.trainer
        return {
            "train": split == "train",
            "seed": self.seed,
            "rank": 0 if trainer is None else trainer.global_rank,
            "world_size": 1 if trainer is None else trainer.world_size,
            "repeat": bool(getattr(trainer, "overfit_batches", 0)),
            "name": f"{split} {what}",
        }

    def loader(self, dataset: Dataset[Any], sampler: EpochSampler, in_host_memory: bool = True) -> DataLoader[Any]:
        """A loader of whole batches.

        Args:
            dataset: Returns a batch for an index tensor.
            sampler: Yields index tensors.
            in_host_memory: Whether the batches have to be copied to an accelerator.

        Raises:
            UserError: If worker processes are to read data that lie on an accelerator, or memory is to be pinned that
                no GPU reads.
        """
        if self.num_workers and not in_host_memory:
            raise UserError(
                f"data.num_workers is {self.num_workers}, but the data lie on the accelerator, which is faster and "
                "which worker processes can't use: set it to 0."
            )
        if sampler.train and self.trainer is not None and self.trainer.fit_loop.is_resuming:
            sampler.go_on_from(*self._progress())
        device = "cpu" if self.trainer is None else self.trainer.strategy.root_device.type
        if self.pin_memory and (device == "cpu" or not in_host_memory):
            where = "on the accelerator already" if device != "cpu" else "used by the CPU"
            raise UserError(f"data.pin_memory: the batches are {where}; leave it out, or set it to null")
        if self.persistent_workers:
            sampler.share_epoch()
        # Gathering a batch from memory takes less than handing it over from a worker process.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # Lightning can't know that the sampler does go on where the checkpoint was written.
        warnings.filterwarnings("ignore", ".*resuming from a checkpoint that ended before the epoch ended.*")
        return DataLoader(
            dataset=dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=device == "cuda" and in_host_memory and self.pin_memory is not False,
            persistent_workers=self.persistent_workers,
            prefetch_factor=self.prefetch_factor,
            generator=torch.Generator().manual_seed(self.seed),  # else it draws from the global generator
        )

    def no_loader(self) -> list[Any]:
        """For a split that there is not."""
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")  # it is meant to be
        return []

    def check_prediction(self, restored: bool, example: str) -> str:
        """The input of ``predict``.

        Args:
            restored: Whether a checkpoint was loaded.
            example: What the input could be.

        Raises:
            UserError: One of the two is missing, or the input can't be read twice, as a pipe can't.
        """
        if self.predict_input is None:
            raise UserError(f"predict: there is nothing to predict; name {example} with --input")
        if not restored:
            raise UserError("predict: no checkpoint; name a run with --run")
        path = os.path.expanduser(self.predict_input)
        if os.path.lexists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise UserError(f"--input {self.predict_input}: a broken link, a pipe or a device; name a file")
        return self.predict_input

    def _progress(self) -> tuple[int, int]:
        """Epoch and batch that a resumed run goes on with."""
        assert self.trainer is not None
        epochs: Any = self.trainer.fit_loop.epoch_progress.current
        batches: Any = self.trainer.fit_loop.epoch_loop.batch_progress
        if epochs.started == epochs.processed:  # the next epoch has not begun
            return epochs.processed, 0
        if batches.is_last_batch and batches.total.completed < batches.total.processed:
            return epochs.processed + 1, 0  # saved within the last batch: Lightning counts the epoch as complete
        return epochs.processed, batches.current.ready
