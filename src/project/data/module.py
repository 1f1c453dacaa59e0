"""What the DataModules do alike."""

import os
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from project.data.sampler import EpochSampler
from project.errors import UserError


class ExperimentData(LightningDataModule):
    """A DataModule whose batches are gathered as a whole, in an order of its own, which a resumed run goes on with.

    Subclasses set `seed` and `num_workers`.
    """

    seed: int
    num_workers: int
    predict_input: str | None = None

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
            UserError: If worker processes are to read data that lie on an accelerator.
        """
        if self.num_workers and not in_host_memory:
            raise UserError(
                f"data.num_workers is {self.num_workers}, but the data lie on the accelerator, which is faster and "
                "which worker processes can't use: set it to 0."
            )
        if sampler.train and self.trainer is not None and self.trainer.fit_loop.is_resuming:
            sampler.go_on_from(*self._progress())
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        # Gathering a batch from memory takes less than handing it over from a worker process.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # Lightning can't know that the sampler does go on where the checkpoint was written.
        warnings.filterwarnings("ignore", ".*resuming from a checkpoint that ended before the epoch ended.*")
        return DataLoader(
            dataset=dataset,
            sampler=sampler,
            batch_size=None,
            num_workers=self.num_workers,  # they live for an epoch, as their copies of the data know one only
            pin_memory=on_gpu and in_host_memory,
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
