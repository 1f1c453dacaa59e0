"""What a DataModule of one's own defines: `open` and `samples`, the others as far as it needs them."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.class_counts import Balance
from litlab.data.metadata import Metadata
from litlab.data.sampler import EpochBatches, EpochSampler
from litlab.data.serving import Serving
from litlab.errors import UserError

M = TypeVar("M", bound=Metadata)


class DataHooks(LightningDataModule, Generic[M]):
    """The methods that `ExperimentData` calls, each with what it does where a subclass says nothing else."""

    item = "samples"  # what they are, for messages
    input_kinds = "a file"  # what `predict --input` may name
    metadata_type: ClassVar[type[Metadata]] = Metadata
    balance: Balance | None = None  # how classes are drawn in training; None: as they are
    batch_size: int
    sizes: dict[str, int]  # of the splits, after `setup`

    @abstractmethod
    def open(self, stage: str | None) -> M:
        """Open the data, split it and set `sizes`.

        Args:
            stage: As of `setup`.

        Returns:
            The metadata of this data.
        """

    @abstractmethod
    def samples(self, split: str) -> Dataset[Any]:
        """Bring a split into memory.

        Args:
            split: "train", "val" or "test".

        Returns:
            A data set that returns a batch for an index tensor; with an attribute `device` where it lies on one.
        """

    def transform(self, batch: Any, epoch: int | None) -> Any:
        """Turn a batch into what the model gets, on the device where it is used; here it stays as it is.

        Args:
            batch: What `samples` or `open_input` gave.
            epoch: Number of the epoch, for a training batch, which may be augmented; None for all others.
        """
        return batch

    def widest(self, batch: Any) -> Any:
        """Return a training batch as large as batches of this data get: `fit --plan` looks at it for its shapes."""
        return batch

    def open_input(self, source: str) -> Dataset[Any]:
        """Open what ``predict --input`` names."""
        raise UserError(f"predict: {type(self).__name__} can't read new files; use a DataModule with open_input()")

    def sampler(self, samples: Any, split: str) -> EpochSampler:
        """Make the sampler of a split or "predict", for what `samples` or `open_input` returned."""
        return EpochBatches(len(samples), self.batch_size, **self.sampler_options(split))

    def labels(self, split: str) -> Tensor | None:
        """Return the class of each sample of a split, int64 of shape (samples,); None where that is not known.

        Class weights and `balance` need them; called after `setup`.
        """
        return None

    def serving(self) -> Serving:
        """Return what stands between raw inputs and the model when it is exported, by the metadata of a checkpoint."""
        raise UserError(f"data: {type(self).__name__} has no serving(), which exports need; see docs/deploy.md")

    def write_shards(self, folder: Path, size: int) -> None:
        """Write the samples into shards, which another DataModule reads; after `setup`.

        Args:
            folder: The folder to fill.
            size: Bytes of a shard.
        """
        raise UserError(f"shards: {type(self).__name__} has no write_shards(); use ImageData or TextData")

    def caches(self) -> dict[Path, Callable[[Path], None]]:
        """Folders below `cache_dir` that have to be whole, and what fills each, in the order in which that happens."""
        return {}

    def ensure_downloaded(self) -> bool:
        """Make sure that public files are there; returns False where generated data takes their place."""
        return True

    def missing_split(self, split: str) -> str:
        """Say why a split, "val" or "test", is missing and what to do."""
        return f"data: there are no {split} {self.item}; add some"

    @abstractmethod
    def sampler_options(self, split: str) -> dict[str, Any]:
        """Return what every `EpochSampler` needs to know of the run; `ExperimentData` has it."""
