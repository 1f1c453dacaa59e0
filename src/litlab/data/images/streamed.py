"""Images in shards, in a folder or object storage: decoded as they come, with any number of processes and workers."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn
from typing_extensions import override

from litlab.data.images.augment import Augment
from litlab.data.images.datamodule import ImageData, Normalize
from litlab.data.images.decode import ImageFormat
from litlab.data.images.serving import ImageMetadata
from litlab.data.images.store import LazyImages
from litlab.data.sampler import EpochSampler
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards
from litlab.types import PositiveInt, Seed


class StreamedImages(ImageData):
    """Images with one class each, in shards that the command ``shards`` has written.

    For data that is larger than the memory, or lies in object storage. The model gets what `ImageData` gives it.

    Args:
        path: Folder of the shards, or an address such as ``s3://bucket/folder``.
        batch_size: Images per batch and process. All batches of an epoch are of about the same size, at most this.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads more files at once.
        normalize: As of `ImageData`.
        seed: Seed of the order and the augmentation; that of the run (seed_everything) when left out.
        augment: Random changes to the training images, in whole batches.
        transform: Random changes to each training image in its original size, as of `ImageData`.
        cache_dir: Folder where shards of object storage are kept, once they have been read.
        **loader: num_workers, pin_memory, persistent_workers and prefetch_factor, as of `ExperimentData`.

    Raises:
        UserError: Later: shards are missing or damaged.
    """

    is_lazy = True

    def __init__(
        self,
        path: str,
        *,
        batch_size: PositiveInt = 512,
        shuffle_shards: PositiveInt = 8,
        normalize: Normalize = "data",
        seed: Seed | None = None,
        augment: Augment = Augment(),  # noqa: B008 - it is frozen
        transform: list[nn.Module] = [],  # noqa: B006 - it is only read
        cache_dir: str = "data/cache",
        **loader: Any,
    ) -> None:
        super(ImageData, self).__init__(batch_size=batch_size, seed=seed, **loader)  # the settings of files don't count
        self.save_hyperparameters(logger=False, ignore=["augment", "transform"])
        self.augment, self.transforms, self.normalize = augment, transform, normalize
        self.shards = Shards(path, Path(cache_dir).expanduser())
        self.path, self.dataset, self.bad_rows = path, "shards", "error"
        self.shuffle_shards = shuffle_shards

    @property
    def written(self) -> ImageMetadata:
        """Metadata of the shards."""
        known = self.shards.metadata(self.item)
        return ImageMetadata(**{**known, "image_shape": tuple(known["image_shape"])})

    @cached_property
    @override
    def form(self) -> ImageFormat:
        return self.written.form

    @override
    def _find_class_names(self) -> list[str]:
        return self.written.class_names

    @property
    @override
    def fingerprint(self) -> str:
        return self.shards.about["fingerprint"]

    @override
    def open(self, stage: str | None) -> ImageMetadata:
        self.augment.check(self.form.height, self.form.width)
        self.sizes = {split: sum(self.shards.sizes(split)) for split in self.shards.about["splits"]}
        self.generated = self.written.generated  # as made-up data can be written, too
        mean, std = self._choose_colours()
        return replace(self.written, mean=mean, std=std)

    @override
    def _measure_colours(self) -> tuple[list[float], list[float]]:
        return self.written.mean, self.written.std

    @override
    def samples(self, split: str) -> LazyImages:
        transforms = self.transforms if split == "train" else []
        return LazyImages(self.sizes[split], self.shards.split(split).read, self.form, transforms)

    @override
    def labels(self, split: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None  # reading them all takes long

    @override
    def sampler(self, samples: LazyImages, split: str) -> EpochSampler:
        if split == "predict":
            return super().sampler(samples, split)
        samples.sampler = ShardBatches(
            self.shards.sizes(split), self.batch_size, self.shuffle_shards, **self.sampler_options(split)
        )
        return samples.sampler
