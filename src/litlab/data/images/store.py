"""Images in batches: decoded once into a cache and mapped into memory from there, or decoded for each batch."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils.data import Dataset

from litlab.data.frames import Policy, drop_bad_rows
from litlab.data.images.augment import reflect_pad
from litlab.data.images.decode import ImageMetadata, Picture, decode, to_array, to_picture
from litlab.data.module import LoaderError
from litlab.data.sampler import EpochSampler
from litlab.data.scores import classification_scores
from litlab.util.progress import progress_bar

_BLOCK = 128  # images that are handled at a time


def decode_files(
    files: Sequence[Path], form: ImageMetadata, policy: Policy, where: object
) -> Iterator[np.ndarray | None]:
    """Decode files, and look at all of them before anything is said of those that are bad.

    Args:
        files: The files.
        form: The format that they get.
        policy: Whether bad ones are an error or left out.
        where: What messages call the data.

    Yields:
        uint8 of shape (channel, height, width); None for a bad one.

    Raises:
        UserError: Files can't be used.
    """
    import pandas as pd

    problems = {}
    with ThreadPoolExecutor() as pool:
        for start in progress_bar(range(0, len(files), _BLOCK), desc="decoding images", unit_scale=_BLOCK):
            block = files[start : start + _BLOCK]
            for file, image in zip(block, pool.map(partial(decode, form=form), block), strict=True):
                if isinstance(image, str):
                    problems[file] = image
                yield None if isinstance(image, str) else image
    drop_bad_rows(pd.DataFrame(index=list(files)), problems, policy, where, "image")


def measure_colours(images: Iterable[np.ndarray]) -> list[list[float]]:
    """Measure mean and standard deviation per channel, on a scale of 0 to 1.

    A channel that never changes gets the deviation of one grey level, not 0.

    Args:
        images: uint8 of shape (channel, height, width) each.
    """
    moments = []
    for image in images:
        pixels = image.reshape(len(image), -1) / 255
        moments.append([pixels.mean(1), np.square(pixels).mean(1)])
    mean, square = np.mean(moments, axis=0)
    variance = np.maximum(square - mean**2, 1 / 255**2)
    return [mean.tolist(), np.sqrt(variance).tolist()]


@dataclass(eq=False)
class StoredImages(Dataset[dict[str, Tensor]]):
    """Images of one split; indexed by a tensor, it returns a batch.

    Args:
        images: uint8 of shape (stored, channel, height, width), in memory, mapped from a file, or on a device.
        labels: int64 of shape (samples,).
        rows: Which of the stored images are the samples, int64 of shape (samples,); None: all of them, in order.
    """

    images: Tensor
    labels: Tensor
    rows: Tensor | None = None

    def __post_init__(self) -> None:
        self.device = self.images.device

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the samples, int64 of shape (batch,), on the CPU.

        To a number can be added a multiple of `len(self)`: the same sample then gets another augmentation.

        Returns:
            image: uint8 (batch, channel, height, width); label: int64 (batch,); index: the numbers, int64 (batch,).
        """
        index = index.to(self.device, non_blocking=True)
        samples = index % len(self)
        rows = samples if self.rows is None else self.rows.index_select(0, samples)
        return {
            "image": self.images.index_select(0, rows),
            "label": self.labels.index_select(0, samples),
            "index": index,
        }

    def in_memory(self, pad: int, processes: int) -> "StoredImages":
        """Copy the samples into memory of their own, in order and padded, where a quarter of what is free is enough.

        Args:
            pad: Pixels to add by reflection on each side.
            processes: How many processes of this machine do the same.

        Returns:
            The copy; or these images where they are too large: then batches come from the file as they are needed.
        """
        size = reflect_pad(self.images[:1], pad).nbytes * len(self)
        if size * processes > psutil.virtual_memory().available / 4:
            return self
        blocks = torch.arange(len(self)).split(_BLOCK)
        return StoredImages(torch.cat([reflect_pad(self[block]["image"], pad) for block in blocks]), self.labels)


@dataclass(eq=False)
class LazyImages(Dataset[dict[str, Tensor]]):
    """Images of one split; indexed by a tensor, it returns a batch.

    Args:
        size: How many there are.
        read: Returns ``image`` (a file or its bytes) and perhaps ``label`` of some images, by their numbers, int64 of
            shape (some,).
        form: The format that they get.
        transforms: What changes each image, uint8 of shape (channel, height, width), in its original size. What they
            draw from Python's or torch's generator follows from (seed, epoch, number) alone.
        sampler: Of the loader that has this copy: it knows seed and epoch.
    """

    size: int
    read: Callable[[Tensor], list[dict[str, Any]]]
    form: ImageMetadata
    transforms: Sequence[nn.Module] = ()
    sampler: EpochSampler | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Decode a batch, by the numbers of the images, int64 of shape (batch,).

        To a number can be added a multiple of `len(self)`: the same image is then changed in another way.

        Returns:
            As `StoredImages` does; without ``label`` in prediction.

        Raises:
            LoaderError: An image is damaged, or unlike the others, or a transform returns no uint8.
        """
        samples, images = self.read(index % self.size), []
        for number, sample in zip(index.tolist(), samples, strict=True):
            source = sample["image"]
            image = decode(source, self.form, partial(self._change, number) if self.transforms else None)
            if isinstance(image, str):
                name = source if isinstance(source, Path) else f"image {number}"
                raise LoaderError(f"data.path: {name}: {image}; replace or delete it")
            images.append(image)
        batch = {"image": torch.from_numpy(np.stack(images)), "index": index}
        if "label" in samples[0]:
            batch["label"] = torch.tensor([sample["label"] for sample in samples])
        return batch

    def _change(self, number: int, picture: Picture) -> Picture:
        """Apply the transforms to an image; afterwards random numbers go on as if none had been drawn."""
        assert self.sampler is not None
        with isolate_rng(include_cuda=False):
            random.seed(f"{self.sampler.seed} {self.sampler.epoch} {number}")
            torch.default_generator.manual_seed(random.getrandbits(63))
            image = nn.Sequential(*self.transforms)(torch.from_numpy(to_array(picture)))
        if image.dtype != torch.uint8:
            raise LoaderError(
                f"data.transform: the last one returns {image.dtype}, not uint8; leave out what changes the type or "
                "normalises, which is done afterwards"
            )
        return to_picture(image.numpy())


def pick(samples: Sequence[dict[str, Any]], numbers: Tensor) -> list[dict[str, Any]]:
    """Return some of the samples, as `LazyImages` reads them."""
    return [samples[number] for number in numbers.tolist()]


def classify_by_mean(train: StoredImages, test: StoredImages) -> dict[str, float]:
    """Give each test image the class whose mean training image is nearest (Rocchio 1971).

    Returns:
        ``test/acc`` and ``test/f1`` (macro), from 0 to 1.
    """

    def read_blocks(images: StoredImages) -> Iterator[Tensor]:
        for index in torch.arange(len(images)).split(_BLOCK):
            yield images[index]["image"].flatten(1).float()

    counts = train.labels.bincount()
    sums = torch.zeros(len(counts), train.images[0].numel())
    for pixels, labels in zip(read_blocks(train), train.labels.split(_BLOCK), strict=True):
        sums.index_add_(0, labels, pixels)
    means = sums / counts[:, None]  # NaN for a class without images
    distances = torch.cat([torch.cdist(pixels, means) for pixels in read_blocks(test)])
    nearest = distances.nan_to_num(torch.inf).argmin(1)
    return classification_scores(nearest.numpy(), test.labels.numpy())
