"""Images in batches: decoded once into a cache and mapped into memory from there, or decoded for each batch."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils.data import Dataset

from litlab.data.frames import Policy, drop_bad_rows
from litlab.data.images.augment import reflect_pad
from litlab.data.images.decode import ImageFormat, Picture, decode, fit, to_picture
from litlab.data.module import LoaderError
from litlab.data.sampler import EpochSampler
from litlab.data.scores import classification_scores
from litlab.data.store import write_array
from litlab.util.progress import progress_bar

_BLOCK = 128  # images that are decoded at a time


def store_images(path: Path, shape: tuple[int, int, int], blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Write images into a file, which `open_array` opens.

    Args:
        path: The file.
        shape: (channel, height, width).
        blocks: uint8 of shape (some, channel, height, width).

    Returns:
        The same number for equal images, int64 of shape (image,).
    """
    digests = []

    def note() -> Iterator[np.ndarray]:
        for block in blocks:
            digests.extend(hashlib.blake2b(image.tobytes(), digest_size=8).hexdigest() for image in block)
            yield block

    write_array(path, shape, note())
    return np.unique(digests, return_inverse=True)[1]


def decode_files(
    files: Sequence[Path], form: ImageFormat, policy: Policy, where: object, problems: dict[Path, str]
) -> Iterator[np.ndarray]:
    """Decode files, and look at all of them before anything is said of those that are bad.

    Args:
        files: The files.
        form: The format that they get.
        policy: Whether bad ones are an error; else they are black.
        where: What messages call the data.
        problems: Gets what is wrong with bad ones.

    Yields:
        uint8 of shape (some, channel, height, width).

    Raises:
        UserError: Files can't be used.
    """
    import pandas as pd

    with ThreadPoolExecutor() as pool, progress_bar(total=len(files), desc="decoding images") as progress:
        for start in range(0, len(files), _BLOCK):
            some = files[start : start + _BLOCK]
            block = np.zeros((len(some), *form.shape), np.uint8)
            for place, image in enumerate(pool.map(partial(decode, form=form), some)):
                if isinstance(image, str):
                    problems[some[place]] = image
                else:
                    block[place] = image
            yield block
            progress.update(len(some))
    drop_bad_rows(pd.Series(0, index=list(files)), {**problems}, policy, where, "image")


def conform_images(images: np.ndarray, form: ImageFormat) -> Iterator[np.ndarray]:
    """Bring decoded images, uint8 of shape (image, channel, height, width), to a format, some at a time."""
    for start in range(0, len(images), _BLOCK):
        block = images[start : start + _BLOCK]
        if block.shape[1:] != form.shape:
            block = np.stack([fit(to_picture(image).convert(form.mode), form) for image in block])
        yield block


def measure_colours(images: Iterable[np.ndarray]) -> tuple[list[float], list[float]]:
    """Measure mean and standard deviation per channel, on a scale of 0 to 1.

    A channel that never changes gets the deviation of one grey level, not 0.

    Args:
        images: uint8 of shape (channel, height, width) each.
    """
    means, squares = [], []
    for image in images:
        pixels = image.reshape(len(image), -1) / 255
        means.append(pixels.mean(1))
        squares.append(np.square(pixels).mean(1))
    mean = np.mean(means, axis=0)
    variance = np.mean(squares, axis=0) - mean**2
    return mean.tolist(), np.sqrt(np.maximum(variance, 1 / 255**2)).tolist()


def warn_of_copies(groups: np.ndarray, splits: np.ndarray, files: Sequence[Path], where: object) -> None:
    """Tell of images for evaluation that are equal to training images: what `store_images` returned tells."""
    train = splits == "train"
    copies = np.flatnonzero(~train & (splits != "") & np.isin(groups, groups[train]))
    if len(copies):
        rank_zero_info(
            f"warning: {where}: {len(copies):,} images for validation or test are copies of training images, such as "
            f"{files[copies[0]]}: results look better than they are"
        )


class StoredImages(Dataset[dict[str, Tensor]]):
    """Images of one split; indexed by a tensor, it returns a batch.

    Args:
        images: uint8 of shape (stored, channel, height, width), in memory, mapped from a file, or on a device.
        labels: int64 of shape (samples,).
        rows: Which of the stored images are the samples, int64 of shape (samples,); None: all of them, in order.
    """

    def __init__(self, images: Tensor, labels: Tensor, rows: Tensor | None = None) -> None:
        self.images = images
        self.labels = labels
        self.rows = rows

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.images.device

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the samples, int64 of shape (batch,), on the CPU.

        To a number can be added a multiple of `len(self)`: the same sample then gets another augmentation.

        Returns:
            image: uint8 (batch, channel, height, width); label: int64 (batch,); index: the numbers, int64 (batch,).
        """
        index = index.to(self.images.device, non_blocking=True)
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
        _, channels, height, width = self.images.shape
        shape = len(self), channels, height + 2 * pad, width + 2 * pad
        if int(np.prod(shape)) * processes > psutil.virtual_memory().available / 4:
            return self
        copy = torch.empty(shape, dtype=torch.uint8)
        for part, numbers in zip(copy.split(_BLOCK), torch.arange(len(self)).split(_BLOCK), strict=True):
            part.copy_(reflect_pad(self[numbers]["image"], pad))
        return StoredImages(copy, self.labels)

    def to(self, device: torch.device) -> "StoredImages":
        """Return the images on a device; some of many, which stay in the cache, as they are."""
        return self if self.rows is not None else StoredImages(self.images.to(device), self.labels.to(device))


class LazyImages(Dataset[dict[str, Tensor]]):
    """Images of one split; indexed by a tensor, it returns a batch.

    Args:
        size: How many there are.
        read: Returns ``image`` (a file or its bytes) and perhaps ``label`` of some images, by their numbers, int64 of
            shape (some,).
        form: The format that they get.
        transforms: What changes each image, drawn by (seed, epoch, number) alone, where a loader reads them.
    """

    sampler: EpochSampler | None = None  # of the loader that has this copy: it knows seed and epoch

    def __init__(
        self,
        size: int,
        read: Callable[[Tensor], list[dict[str, Any]]],
        form: ImageFormat,
        transforms: Sequence[nn.Module] = (),
    ) -> None:
        self.size = size
        self.read = read
        self.form = form
        self.transforms = transforms

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Decode a batch, by the numbers of the images, int64 of shape (batch,).

        To a number can be added a multiple of `len(self)`: the same image is then changed in another way.

        Returns:
            As `StoredImages` does; without ``label`` in prediction.

        Raises:
            LoaderError: An image is damaged, or unlike the others.
        """
        samples, images = self.read(index % self.size), []
        for number, sample in zip(index.tolist(), samples, strict=True):
            change = None
            if self.transforms and self.sampler is not None:
                draw = f"{self.sampler.seed} {self.sampler.epoch} {number}"
                change = partial(change_image, self.transforms, draw)
            source = sample["image"]
            image = decode(source, self.form, change)
            if isinstance(image, str):
                name = source if isinstance(source, Path) else f"image {number}"
                raise LoaderError(f"data.path: {name}: {image}; replace or delete it")
            images.append(image)
        batch = {"image": torch.from_numpy(np.stack(images)), "index": index}
        return batch | {
            name: torch.tensor([sample[name] for sample in samples]) for name in samples[0].keys() - {"image"}
        }


def read_files(files: Sequence[Path], labels: Tensor | None, numbers: Tensor) -> list[dict[str, Any]]:
    """Return image files and their labels, as `LazyImages` asks for them."""
    if labels is None:
        return [{"image": files[number]} for number in numbers.tolist()]
    return [{"image": files[number], "label": int(labels[number])} for number in numbers.tolist()]


def change_image(transforms: Sequence[nn.Module], draw: str, picture: Picture) -> Picture:
    """Apply transforms to an image as it is in its file.

    Args:
        transforms: Of uint8 images of shape (channel, height, width), such as those of ``torchvision.transforms.v2``.
        draw: What the random numbers of Python and torch follow from; afterwards they go on as if none had been drawn.
        picture: The image.

    Raises:
        LoaderError: They return something else.
    """
    image = torch.from_numpy(np.array(picture)).reshape(picture.height, picture.width, -1).permute(2, 0, 1)
    with isolate_rng(include_cuda=False):
        random.seed(draw)
        torch.default_generator.manual_seed(random.getrandbits(63))
        for transform in transforms:
            image = transform(image)
    if image.dtype != torch.uint8:
        raise LoaderError(
            f"data.transform: the last one returns {image.dtype}, not uint8; leave out what changes the type or "
            "normalises, which is done afterwards"
        )
    return to_picture(image.numpy())


def classify_by_mean(train: StoredImages, test: StoredImages, num_classes: int) -> dict[str, float]:
    """Give each test image the class whose mean training image is nearest (Rocchio 1971).

    Returns:
        ``test/acc`` and ``test/f1`` (macro), from 0 to 1.
    """
    means = []
    for label in range(num_classes):
        members = (train.labels == label).nonzero()[:, 0]
        means.append(train[members]["image"].flatten(1).float().mean(0))
    distances = []
    for index in torch.arange(len(test)).split(_BLOCK):
        distances.append(torch.cdist(test[index]["image"].flatten(1).float(), torch.stack(means)))
    nearest = torch.cat(distances).nan_to_num(torch.inf).argmin(1)  # NaN are those of a class without images
    return classification_scores(nearest.numpy(), test.labels.numpy())
