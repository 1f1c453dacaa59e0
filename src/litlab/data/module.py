"""The life cycle that all DataModules share: files, cache, splits, batches, checkpoint, prediction."""

import os
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from litlab.data.balance import BalancedDraw
from litlab.data.cache import cache_lock, find_corruption, is_whole
from litlab.data.hooks import DataHooks, M
from litlab.data.loading import LoaderSettings, same_on_all_nodes
from litlab.data.metadata import ClassMetadata
from litlab.data.numbered import Numbered, NumberedBatch
from litlab.data.paths import user_path
from litlab.data.sampler import EpochSampler
from litlab.errors import UserError
from litlab.parallel.groups import data_ranks
from litlab.types import NonNegativeInt, PositiveInt, Seed

SPLITS = ("train", "val", "test")


class ExperimentData(DataHooks[M]):
    """A DataModule whose batches are gathered as a whole, in an order that a resumed run continues exactly.

    A subclass defines `open` and `samples`, and as far as it needs them `transform` (augmentation), `caches` (data that
    is prepared once), `ensure_downloaded` (public files), `open_input` (prediction), `sampler` and the other
    `DataHooks`.

    Args:
        batch_size: Samples per batch and process.
        seed: Seed of the order; that of the run (seed_everything) when left out.
        generated: Whether the data is made up.
        cache_dir: Folder of the caches; null where there are none.
        num_workers: Processes that prepare batches; 0: the training process does, which is faster for data in memory.
        pin_memory: Whether batches are copied to page-locked memory on their way to a GPU; null: where there is one.
        persistent_workers: Whether the processes stay from one epoch to the next, instead of starting again.
        prefetch_factor: Batches that each process prepares ahead; null: 2.

    Raises:
        UserError: A setting needs workers that there are not.
    """

    predict_input: str | None = None
    shares_samples = True  # among processes: no sampler of Lightning's is needed
    numbered = False  # a model sets it in its `setup` to get `batch_numbers`
    batch_numbers: Tensor  # of the samples in the training batch at hand, int64 of shape (batch,), from 0

    def __init__(
        self,
        *,
        batch_size: PositiveInt = 1,
        seed: Seed | None = None,
        generated: bool = False,
        cache_dir: str | None = None,
        num_workers: NonNegativeInt = 0,
        pin_memory: bool | None = None,
        persistent_workers: bool = False,
        prefetch_factor: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.loading = LoaderSettings(num_workers, pin_memory, persistent_workers, prefetch_factor)
        self.batch_size = batch_size
        self.seed = seed or 0
        self.cache_dir = None if cache_dir is None else user_path(cache_dir, "data.cache_dir")
        self.generated = generated
        self.sizes: dict[str, int] = {}  # of the splits, after `setup`
        self.metadata: M | None = None  # after `setup`, or from a checkpoint
        self.restored = False  # whether the metadata is a checkpoint's
        self._samples: dict[str, Any] = {}
        self._draw: BalancedDraw | None = None  # after `setup` for training, with `balance`

    # ---- the life cycle

    def prepare_data(self) -> None:
        """Download and prepare what is not there yet, or fall back to generated data. Runs on one process."""
        if self.trainer is not None and self.trainer.predicting:
            return
        folders = list(self.caches())
        if folders and not any(find_corruption(folder) for folder in folders):
            return
        with cache_lock(self.cache_dir) if self.cache_dir else nullcontext():
            if not self.generated and (not folders or find_corruption(folders[0])):
                self.generated = not self.ensure_downloaded()  # generated data has other caches
            for folder, fill in self.caches().items():
                if not is_whole(folder):
                    fill(folder)

    def setup(self, stage: str | None = None) -> None:
        """Open and split the data.

        Args:
            stage: "fit", "validate", "test" or "predict"; None: all but prediction.

        Raises:
            UserError: There are no samples for this stage, or a checkpoint was trained on other data.
        """
        if stage == "predict":
            return
        if self.trainer is not None:
            self.generated = same_on_all_nodes(self.trainer, self.generated)
        self._samples.clear()
        metadata = self.open(stage)
        split = {"validate": "val", "test": "test"}.get(stage or "")
        if split and split not in self.sizes:
            raise UserError(self.missing_split(split))
        if self.restored:
            self.known_metadata.check_same(metadata)
        else:
            self.metadata = metadata
        if self.balance is not None and stage in ("fit", None):
            names = cast(ClassMetadata, self.known_metadata).class_names
            labels = self.labels("train")
            if labels is None:
                raise UserError(f"data.balance: {type(self).__name__} has no labels() to count; leave it out")
            self._draw = BalancedDraw(labels, self.balance, names)
            rank_zero_info(self._draw.description)

    def teardown(self, stage: str) -> None:
        """Free the memory of the splits."""
        self._samples.clear()

    @property
    def known_metadata(self) -> M:
        """The metadata; a RuntimeError before `setup` unless a checkpoint was loaded."""
        if self.metadata is None:
            raise RuntimeError(f"{type(self).__name__}: call setup() first")
        return self.metadata

    def state_dict(self) -> dict[str, Any]:
        """Return the metadata, which a checkpoint carries so that it can serve raw files."""
        return {} if self.metadata is None else self.metadata.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the metadata of a checkpoint: it counts from now on.

        Raises:
            UserError: The data at hand has other classes, another shape and so on.
        """
        trained = cast(M, self.metadata_type(**state_dict))
        if self.metadata is not None:
            trained.check_same(self.metadata)
        self.metadata, self.restored = trained, True
        self._samples.clear()

    # ---- batches

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of the training samples, in an order that depends on (seed, epoch) only."""
        return self._split_loader("train")

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches of the validation samples; none where there is no validation split."""
        if "val" in self.sizes:
            return self._split_loader("val")
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")  # it is meant to be
        return []

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of the test samples."""
        return self._split_loader("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches of what `predict_input` names."""
        return self._loader(self.open_input(self._checked_input()), "predict")

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Apply `transform`."""
        trainer, batch = self.trainer, self._without_numbers(batch)
        return self.transform(batch, trainer.current_epoch if trainer is not None and trainer.training else None)

    def batches(self, split: str, epoch: int = 0, device: torch.device | str = "cpu") -> Iterator[Any]:
        """Yield the batches of a split as the model gets them from a Trainer: augmented, normalised, on a device.

        For loops of your own, in notebooks. What is missing is prepared and set up.

        Args:
            split: "train", "val" or "test".
            epoch: Number of the epoch, from 0: it chooses order and augmentation of the training batches.
            device: Where they are to be.

        Raises:
            UserError: There is no such split.
        """
        if split not in SPLITS:
            raise UserError(f"split: {split!r} is not valid; use {', '.join(SPLITS)}")
        if not self.sizes:
            self.prepare_data()
            self.setup()
        if split not in self.sizes:
            raise UserError(self.missing_split(split))
        loader = self._split_loader(split)
        cast(EpochSampler, loader.sampler).set_epoch(epoch)
        for batch in loader:
            moved = self.transfer_batch_to_device(batch, torch.device(device), 0)
            yield self.transform(self._without_numbers(moved), epoch if split == "train" else None)

    def _split_loader(self, split: str) -> DataLoader[Any]:
        if split not in self._samples:
            self._samples[split] = self.samples(split)
        return self._loader(self._samples[split], split)

    def _loader(self, samples: Dataset[Any], split: str) -> DataLoader[Any]:
        sampler = self.sampler(samples, split)
        if split == "train" and self.numbered:
            samples = Numbered(samples)
        return self.loading.loader(samples, sampler, self.trainer, self.seed)

    def _without_numbers(self, batch: Any) -> Any:
        if isinstance(batch, NumberedBatch):
            batch, self.batch_numbers = batch
        return batch

    def sampler_options(self, split: str) -> dict[str, Any]:
        """Return what every `EpochSampler` needs to know of the run, for any split or "predict"."""
        trainer = self.trainer
        return {
            "train": split == "train",
            "seed": self.seed,
            **data_ranks(trainer),
            "repeat": bool(getattr(trainer, "overfit_batches", 0)),
            "name": f"{split} {self.item}",
            "draw": self._draw if split == "train" else None,
        }

    def _checked_input(self) -> str:
        """Return the input of ``predict``; refused where it or a checkpoint is missing, or it can't be read twice."""
        if self.predict_input is None:
            raise UserError(f"predict: there is nothing to predict; name {self.input_kinds} with --input")
        if not self.restored:
            raise UserError("predict: no checkpoint; name a run with --run")
        path = os.path.expanduser(self.predict_input)
        if os.path.lexists(path) and not os.path.isfile(path) and not os.path.isdir(path):
            raise UserError(f"--input {self.predict_input}: a broken link, a pipe or a device; name a file")
        return self.predict_input
