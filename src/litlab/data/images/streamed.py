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
from litlab.data.shards import ShardSplit
from litlab.data.streamed import StreamedData
from litlab.types import PositiveInt, Seed


class StreamedImages(StreamedData[ImageMetadata], ImageBatches):
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
        UserError: Later: shards are missing or damaged.
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
        super().__init__(path, shuffle_shards, batch_size=batch_size, seed=seed, cache_dir=cache_dir, **loader)
        self.augment = Augment(**augment) if isinstance(augment, dict) else augment
        augment = asdict(replace(self.augment, steps=[]))  # type: ignore[assignment]  # as in `ImageData`
        self.save_hyperparameters(logger=False)
        self.bad_rows = "error"
        self._predicted = []

    @property
    def written(self) -> ImageMetadata:
        """Metadata of the shards."""
        known = self.about["metadata"]
        return ImageMetadata(**{**known, "image_shape": tuple(known["image_shape"])})

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets; of the checkpoint's where one was loaded."""
        return self.current.image_shape

    @property
    def description(self) -> str:
        """The data set in one line."""
        return self.described(f"images of {' x '.join(map(str, self.image_shape))}")

    @override
    def open(self, stage: str | None) -> ImageMetadata:
        known = super().open(stage)
        self.augment.check(known.image_shape)
        return known

    @override
    def samples(self, split: str) -> "ShardImages":
        known = self.written
        _, height, width = known.image_shape
        form = ImageFormat(height, width, known.mode, known.resize, convert=True)
        return ShardImages(self.shards.split(split), self.sizes[split], form)

    @override
    def sampler(self, samples: Any, split: str) -> EpochSampler:
        if split == "predict":
            return super().sampler(samples, split)
        shards, options = self.sizes_of_shards(split), self.sampler_options(split)
        return ShardBatches(shards, self.batch_size, self.shuffle_shards, **options)


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
