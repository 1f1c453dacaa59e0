"""What DataModules share that read shards, whatever is in them."""

from abc import abstractmethod
from typing import Any, TypeVar

from typing_extensions import override

from litlab.data.metadata import ClassMetadata
from litlab.data.module import ExperimentData
from litlab.data.shards import Shards
from litlab.errors import UserError

C = TypeVar("C", bound=ClassMetadata)


class StreamedData(ExperimentData[C]):
    """Samples with one class each, in shards that the command ``shards`` has written.

    A subclass sets `item`, which is the kind of the shards too, and defines `written` and `samples`.

    Args:
        path: Folder of the shards, or an address such as ``s3://bucket/folder``.
        shuffle_shards: As of `ShardBatches`.
        **settings: As of `ExperimentData`.
    """

    def __init__(self, path: str, shuffle_shards: int, **settings: Any) -> None:
        super().__init__(generated=False, **settings)  # `open` reads whether it is
        assert self.cache_dir is not None
        self.shards = Shards(path, self.cache_dir)
        self.shuffle_shards = shuffle_shards

    @property
    def about(self) -> dict[str, Any]:
        """What was written with the shards, see `Shards.about`.

        Raises:
            UserError: As of `Shards.about`; or they hold something else.
        """
        about = self.shards.about
        if about.get("kind") != self.item:
            raise UserError(f"data.path: {self.shards.where} holds {about.get('kind')}, not {self.item}")
        return about

    @property
    @abstractmethod
    def written(self) -> C:
        """Metadata of the shards, with the settings of this DataModule."""

    @property
    def current(self) -> C:
        """Metadata that counts: the checkpoint's where one was loaded."""
        return self.metadata if self.metadata and self.restored else self.written

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        return self.current.class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def has_val(self) -> bool:
        """Whether there are samples to validate on."""
        return "val" in self.about["splits"]

    @property
    def has_test(self) -> bool:
        """Whether there are samples to test on."""
        return "test" in self.about["splits"]

    @property
    def fingerprint(self) -> str:
        """Changes whenever the shards are written again."""
        return self.about["fingerprint"]

    def described(self, contents: str) -> str:
        """Describe the data in one line: where it is, the sizes of its splits, its contents and classes."""
        counts = " / ".join(f"{sum(self.sizes_of_shards(split)):,} {split}" for split in self.about["splits"])
        made = "GENERATED " if self.about["metadata"]["generated"] else ""
        return f"{self.shards.where}: {counts} {made}{contents}, {self.num_classes} classes, in shards"

    def sizes_of_shards(self, split: str) -> list[int]:
        """Return the number of samples in each shard of a split."""
        return self.about["splits"][split]["samples"]

    @override
    def open(self, stage: str | None) -> C:
        self.sizes = {split: sum(self.sizes_of_shards(split)) for split in self.about["splits"]}
        self.generated = self.about["metadata"]["generated"]  # as made-up data can be written, too
        return self.written
