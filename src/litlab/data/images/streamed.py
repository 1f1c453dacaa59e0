"""Images in shards, in a folder or object storage: decoded as they come, with any number of processes and workers."""

import io
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from typing_extensions import override

from litlab.data.images.augment import Augment
from litlab.data.images.batches import ImageBatches
from litlab.data.images.decode import ImageFormat
from litlab.data.images.lazy import decoded
from litlab.data.images.metadata import ImageMetadata
from litlab.data.sampler import EpochSampler
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards, ShardSplit
from litlab.errors import UserError
from litlab.types import PositiveInt, Seed, check_bounds


class StreamedImages(ImageBatches):
    """Images with one class each, in shards that the command ``shards`` has written.

    For data that is larger than the memory, or lies in object storage. The model gets what `ImageData` gives it.

    Args:
        path: Folder of the shards, or an address such as ``s3://bucket/folder``.
        batch_size: Images per batch and process. All batches of an epoch are of about the same size, at most this.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more files at once.
        seed: Seed of the order and the augmentation; that of the run (seed_everything) when left out.
        augment: Random changes to the training images.
        cache_dir: Folder where shards of object storage are kept, once they have been read.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: A value is not valid; later: shards are missing or damaged.
    """

    def __init__(
        self,
        path: str,
        *,
        batch_size: PositiveInt = 512,
        shuffle_shards: PositiveInt = 8,
        seed: Seed | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed, cache_dir=cache_dir, **loader)
        self.augment = Augment(**augment) if isinstance(augment, dict) else augment
        augment = asdict(replace(self.augment, steps=[]))  # type: ignore[assignment]  # as in `ImageData`
        self.save_hyperparameters(logger=False)
        check_bounds(StreamedImages, self.hparams, "data")
        assert self.cache_dir is not None
        self.shards = Shards(path, self.cache_dir)
        self.shuffle_shards = shuffle_shards
        self.bad_rows = "error"
        self._predicted = []

    @property
    def _known(self) -> ImageMetadata:
        """The metadata of the shards."""
        about = self.shards.about
        if about.get("kind") != "images":
            raise UserError(f"data.path: {self.shards.where} holds {about.get('kind')}, not images")
        return ImageMetadata(**{**about["metadata"], "image_shape": tuple(about["metadata"]["image_shape"])})

    @property
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels; those of the checkpoint where one was loaded."""
        return (self.metadata if self.metadata and self.restored else self._known).class_names

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets; of the checkpoint's where one was loaded."""
        return (self.metadata if self.metadata and self.restored else self._known).image_shape

    @property
    def has_val(self) -> bool:
        """Whether there are images to validate on."""
        return "val" in self.shards.about["splits"]

    @property
    def has_test(self) -> bool:
        """Whether there are images to test on."""
        return "test" in self.shards.about["splits"]

    @property
    def description(self) -> str:
        """The data set in one line."""
        splits = self.shards.about["splits"]
        counts = " / ".join(f"{sum(known['samples']):,} {split}" for split, known in splits.items())
        shape = " x ".join(map(str, self.image_shape))
        return f"{self.shards.where}: {counts} images of {shape}, {self.num_classes} classes, in shards"

    @property
    def fingerprint(self) -> str:
        """Changes whenever the shards are written again."""
        return self.shards.about["fingerprint"]

    @override
    def open(self, stage: str | None) -> ImageMetadata:
        known = self._known
        self.augment.check(known.image_shape)
        self.sizes = {split: sum(part["samples"]) for split, part in self.shards.about["splits"].items()}
        return known

    @override
    def samples(self, split: str) -> "ShardImages":
        known = self._known
        _, height, width = known.image_shape
        form = ImageFormat(height, width, known.mode, known.resize, convert=True)
        return ShardImages(self.shards.split(split), self.sizes[split], form)

    @override
    def sampler(self, samples: Any, split: str) -> EpochSampler:
        if split == "predict":
            return super().sampler(samples, split)
        shards = self.shards.about["splits"][split]["samples"]
        return ShardBatches(shards, self.batch_size, self.shuffle_shards, **self.sampler_options(split))


class ShardImages(Dataset[dict[str, Tensor]]):
    """Images of one split in shards; indexed by a tensor, it returns a batch.

    Args:
        split: The shards.
        size: Number of images.
        form: The format that they get.
    """

    def __init__(self, split: ShardSplit, size: int, form: ImageFormat) -> None:
        self.split = split
        self.size = size
        self.form = form

    def __len__(self) -> int:
        """Return the number of images."""
        return self.size

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Decode a batch, by the numbers of the images, int64 of shape (batch,).

        Returns:
            As `StoredImages` does.

        Raises:
            LoaderError: A shard or an image is damaged, or out of reach.
        """
        samples = self.split.read(index)
        names = [f"{self.split.where}: image {number}" for number in index.tolist()]
        images = decoded([io.BytesIO(sample["image"]) for sample in samples], names, self.form)
        return {"image": images, "label": torch.tensor([sample["label"] for sample in samples]), "index": index}
