"""The life cycle that all DataModules share: files, cache, splits, batches, checkpoint,
prediction.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from litlab.data.public import obtain
from litlab.data.sampler import EpochBatches, EpochSampler, LengthBatches
from litlab.data.serving import Metadata, Serving
from litlab.data.source import DataSource
from litlab.data.store import fill_cache
from litlab.errors import UserError
from litlab.types import NonNegativeInt, PositiveInt, Seed
from litlab.util.checksums import find_damaged
from litlab.util.classes import Balance, draw_samples, weigh_classes
from litlab.util.ranks import data_ranks
from litlab.util.recipes import is_fact
from litlab.util.steps import find_progress


class ExperimentData(DataSource, LightningDataModule):
    """A DataModule whose batches are gathered as a whole, in an order that a resumed run continues
    exactly.

    A subclass defines `open` and `samples`, and as far as it needs them `transform` (augmentation),
    `cache_folder` and `fill_cache` (data that is prepared once), `open_input` and
    `write_predictions` (prediction), `serving` (export), `labels` (classes) and `sampler`. In
    Python, use it with a Trainer of ``use_distributed_sampler=False``, as the command line does.

    Args:
        batch_size: Samples per batch and process.
        seed: Seed of the order; that of the run (seed_everything) when left out.
        generated: Whether the data is made up.
        drop_last: Whether the samples that don't fill the last batch of a training epoch are left
            out of it.
        num_workers: Processes that prepare batches; 0: the training process does, which is faster
            for data in memory.
        pin_memory: Whether batches are copied to page-locked memory on their way to a GPU; null:
            where there is one.
        persistent_workers: Whether the processes stay from one epoch to the next, instead of
            starting again.
        prefetch_factor: Batches that each process prepares ahead; null: 2.
    """

    item = "samples"  # what messages call them, such as images
    metadata_type: ClassVar[type[Metadata]] = Metadata
    # How the names of files end that `write_predictions` writes; "": it fills a folder
    output_suffixes: ClassVar[tuple[str, ...]] = (".csv", ".parquet")
    shares_samples = True  # among processes: no sampler of Lightning's is needed

    balance: Balance | None = None  # how classes are drawn in training; None: as they are
    predict_input: str | None = None

    def __init__(
        self,
        *,
        batch_size: PositiveInt = 1,
        seed: Seed | None = None,
        generated: bool = False,
        drop_last: bool = True,
        num_workers: NonNegativeInt = 0,
        pin_memory: bool | None = None,
        persistent_workers: bool = False,
        prefetch_factor: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seed = seed or 0
        self.generated = generated
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.persistent_workers = persistent_workers
        self.prefetch_factor = prefetch_factor
        self.sizes: dict[str, int] = {}  # of the splits, after `setup`
        self.metadata: Any = None  # after `setup`, or from a checkpoint
        self.restored = False  # whether the metadata is a checkpoint's
        # What `samples` returned, by split: a loader that is made again needs no second copy
        self._samples: dict[str, Any] = {}
        # Chooses the samples of an epoch; after `setup` for training, with `balance`
        self._draw: Any = None

    # ---- what a subclass defines

    @abstractmethod
    def open(self, stage: str | None) -> Any:
        """Open the data, split it and set `sizes`.

        Args:
            stage: As of `setup`.

        Returns:
            The `Metadata` of this data.
        """

    @abstractmethod
    def samples(self, split: str) -> Dataset[Any]:
        """Bring a split ("train", "val" or "test") into memory.

        Returns:
            A data set that returns a batch for an index tensor; with an attribute `device` where it
            lies on one, and `lengths`, int64 of shape (samples,), where batches are padded to their
            longest sample.
        """

    def transform(self, batch: Any, epoch: int | None) -> Any:
        """Turn a batch into what the model gets, on the device where it is used; here it stays as
        it is.

        Args:
            batch: What `samples` or `open_input` gave.
            epoch: Number of the epoch, for a training batch, which may be augmented; None for all
                others.
        """
        return batch

    def cache_folder(self) -> Path | None:
        """Return where prepared data is kept, by a name that changes with the data; None where none
        is.
        """
        return None

    def fill_cache(self, folder: Path) -> None:
        """Prepare the data and write it into a folder, which becomes `cache_folder` when it is
        whole.
        """

    def labels(self, split: str) -> Tensor | None:
        """Return the class of each sample of a split, int64 of shape (samples,); None where there
        are no classes.
        """
        return None

    def survey(self) -> Any:
        """Return the `Metadata` before `setup`, as far as it costs little to know; here all of
        it.
        """
        self.setup()
        return self.metadata

    def sampler(self, samples: Any, split: str) -> EpochSampler:
        """Make the sampler of a split or "predict", for what `samples` or `open_input` returned."""
        options = self.sampler_options(split)
        lengths = getattr(samples, "lengths", None)  # where a batch is padded to its longest sample
        if lengths is not None:
            return LengthBatches(lengths, self.batch_size, **options)
        return EpochBatches(len(samples), self.batch_size, **options)

    def open_input(self, source: str) -> Dataset[Any]:
        """Open what ``predict --input`` names."""
        raise UserError(
            f"predict: {type(self).__name__} can't read new files; use a DataModule "
            "with open_input()"
        )

    def serving(self) -> Serving:
        """Return what stands between raw inputs and a deployed model."""
        raise UserError(
            f"export: {type(self).__name__} has no serving(); use a DataModule that has one"
        )

    def missing_split(self, split: str) -> str:
        """Return the message for a split that has no samples."""
        return (
            f"data: there are no {split} {self.item}; add some, or take some for it "
            "(data.val_fraction, data.fold)"
        )

    def widest(self, batch: Any) -> Any:
        """Return a training batch as large as batches of this data get: `fit --plan` looks at it
        for its shapes.
        """
        return batch

    # ---- the life cycle

    def prepare_data(self) -> None:
        """Download and prepare what is not there yet, or fall back to generated data. Runs on one
        process.
        """
        # Prediction reads new files alone: the training data need not be there
        if self.trainer is not None and self.trainer.predicting:
            return
        self.check_public()
        # Where the cache is whole, a public set is not downloaded again, even if its files are gone
        folder = self.cache_folder()
        is_there = (
            self.generated
            or self.dataset is not None
            or (folder is not None and find_damaged(folder) is None)
        )
        if self.public is not None and not is_there:
            self.generated = not obtain(self.public, self.path, self.fallback, self.own_flags)
            folder = self.cache_folder()  # made-up data has another
        if folder is not None:
            fill_cache(folder, self.fill_cache)

    def setup(self, stage: str | None = None) -> None:
        """Open and split the data.

        Args:
            stage: "fit", "validate", "test" or "predict"; None: all but prediction.

        Raises:
            UserError: There are no samples for this stage, or a checkpoint was trained on other
                data.
        """
        if stage == "predict":
            return
        if self.trainer is not None:
            # `prepare_data` runs on one process, which alone knows whether a download failed
            self.generated = self.trainer.strategy.broadcast(self.generated)
        # Each stage opens the data anew: Lightning tears it down after each
        self._samples.clear()
        metadata = self.open(stage)
        split = {"validate": "val", "test": "test"}.get(stage or "")
        if split and split not in self.sizes:
            raise UserError(self.missing_split(split))
        # A checkpoint's metadata stays: its network has learned with those means and categories
        if self.restored:
            self.metadata.check_same(metadata)
        else:
            self.metadata = metadata
        if self.balance is not None and stage in ("fit", None):
            labels = self.labels("train")
            if labels is None:
                raise UserError(
                    f"data.balance: {type(self).__name__} has no classes to balance; leave it out"
                )
            weights = weigh_classes(labels, self.metadata.class_names, self.balance, "data.balance")
            self._draw = partial(draw_samples, weights[labels])

    def teardown(self, stage: str) -> None:
        self._samples.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the metadata, which a checkpoint carries so that it can serve raw files."""
        return {} if self.metadata is None else self.metadata.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the metadata of a checkpoint: it counts from now on.

        Raises:
            UserError: The data at hand has other classes, another shape and so on.
        """
        # In prediction and in exports no data was opened that could be compared
        trained = self.metadata_type.load(state_dict)
        if self.metadata is not None:
            trained.check_same(self.metadata)
        self.metadata, self.restored = trained, True
        self._samples.clear()  # they were made by other metadata

    # ---- what models, callbacks, messages and reports ask for

    @property
    def facts(self) -> Any:
        """The `Metadata`: of the checkpoint where one was loaded; before `setup` what `survey`
        returns.
        """
        return self.metadata or self.survey()

    def __getattr__(self, name: str) -> Any:
        """Return what the metadata says: ``data.num_classes`` is ``data.facts.num_classes``."""
        # Python comes here only where a name is not found: if it is a property's, that has raised
        # an AttributeError, and raises it again with its own message
        if hasattr(type(self), name):
            return object.__getattribute__(self, name)
        if is_fact(type(self), name):
            return getattr(self.facts, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def has_test(self) -> bool:
        """Whether there are samples to test on; before `setup` they are assumed to be there."""
        return not self.sizes or "test" in self.sizes

    def describe(self, contents: str) -> str:
        """Return the data set in one line: where it is from, the sizes of its splits once known,
        its contents.
        """
        counts = " / ".join(f"{count:,} {split}" for split, count in self.sizes.items())
        return f"{self.source_name}: {counts + ' ' if counts else ''}{contents}"

    # ---- batches

    def choose_device(self, size: int) -> torch.device:
        """Return where to keep data of a size in bytes: on a CUDA GPU, if it takes a quarter of the
        free memory there at most, else on the host.
        """
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        # Worker processes can't read what the training process has on its GPU
        may_move = device.type == "cuda" and not self.num_workers
        has_room = may_move and size <= torch.cuda.mem_get_info(device)[0] / 4
        return device if has_room else torch.device("cpu")

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches of the training samples, in an order that depends on (seed, epoch) only."""
        loader = self._split_loader("train")
        if self.sizes["train"] < self.batch_size:
            rank_zero_info(
                f"warning: data.batch_size: {self.batch_size} is more than all samples; "
                "an epoch is a step"
            )
        return loader

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Batches of the validation samples; none where there is no validation split."""
        if "val" in self.sizes:
            return self._split_loader("val")
        # Lightning warns of a list without loaders; here it is meant
        warnings.filterwarnings("ignore", "Total length of `list` across ranks is zero")
        return []

    def test_dataloader(self) -> DataLoader[Any]:
        """Batches of the test samples."""
        return self._split_loader("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """Batches of what `predict_input` names."""
        if not self.restored or self.predict_input is None:
            raise UserError("predict: it needs a checkpoint and an input; set --run and --input")
        source = self.find_local(self.predict_input, "--input")
        source = str(source) if isinstance(source, Path) else source  # or a frame
        return self._loader(self.open_input(source), "predict")

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        # On the device, where a whole batch is augmented at once; only training batches are
        if self.trainer is None or not self.trainer.training:
            return self.transform(batch, None)
        return self.transform(batch, self.trainer.current_epoch)

    def batches(
        self, split: str, epoch: int = 0, device: torch.device | str = "cpu"
    ) -> Iterator[Any]:
        """Yield the batches of a split as the model gets them from a Trainer: augmented,
        normalised, on a device.

        For loops of your own, in notebooks. What is missing is prepared and set up.

        Args:
            split: "train", "val" or "test".
            epoch: Number of the epoch, from 0: it chooses order and augmentation of the training
                batches.
            device: Where they are to be.

        Raises:
            UserError: There is no such split.
        """
        if not self.sizes:
            self.prepare_data()
            self.setup()
        if split not in self.sizes:
            raise UserError(self.missing_split(split))
        loader = self._split_loader(split)
        cast(EpochSampler, loader.sampler).set_epoch(epoch)
        for batch in loader:
            moved = self.transfer_batch_to_device(batch, torch.device(device), 0)
            yield self.transform(moved, epoch if split == "train" else None)

    def sampler_options(self, split: str) -> dict[str, Any]:
        """Return what every `EpochSampler` needs to know of the run, for any split or "predict"."""
        return {
            "train": split == "train",
            "seed": self.seed,
            **data_ranks(self.trainer),  # rank and world_size
            "repeat": bool(getattr(self.trainer, "overfit_batches", 0)),
            "drop_last": self.drop_last,
            "name": f"{split} {self.item}",
            "draw": self._draw if split == "train" else None,
        }

    def _split_loader(self, split: str) -> DataLoader[Any]:
        if split not in self._samples:
            self._samples[split] = self.samples(split)
        return self._loader(self._samples[split], split)

    def _loader(self, samples: Any, split: str) -> DataLoader[Any]:
        """Make a loader; where the trainer resumes an epoch, one that begins where that ended."""
        is_on_host = getattr(samples, "device", torch.device("cpu")).type == "cpu"
        samples = copy(samples)  # what is set on it is for this loader

        # The order of the samples; data sets that draw ask the sampler for seed and epoch
        sampler = samples.sampler = self.sampler(samples, split)
        if sampler.train and self.trainer is not None and self.trainer.fit_loop.is_resuming:
            sampler.go_on_from(*find_progress(self.trainer))
        # Workers that stay have the copy of the sampler that they began with, of the first epoch
        if self.persistent_workers:
            sampler.share_epoch()

        # Gathering a batch from memory takes less than handing it over from a worker process.
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        # Lightning can't know that the sampler continues where the checkpoint was written.
        warnings.filterwarnings(
            "ignore", ".*resuming from a checkpoint that ended before the epoch ended.*"
        )
        # Only memory of the host can be pinned, and only copies to a GPU are faster from there
        is_for_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return DataLoader(
            dataset=samples,
            sampler=sampler,
            batch_size=None,  # the sampler yields whole batches, and nothing is to be collated
            num_workers=self.num_workers,
            pin_memory=is_for_gpu and is_on_host and self.pin_memory is not False,
            persistent_workers=self.persistent_workers,
            prefetch_factor=self.prefetch_factor,
            # Else each epoch draws a seed from the global generator, and so changes what a model
            # draws, which a resumed run would not repeat
            generator=torch.Generator().manual_seed(self.seed),
        )
