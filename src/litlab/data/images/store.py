"""Images in batches: decoded once into a cache and mapped into memory from there, or decoded for each batch."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import psutil
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.utils.data import Dataset

from litlab.data.images.augment import reflect_pad
from litlab.data.images.decode import ImageFormat, OddImage, Picture, conform, decode, decode_all, refuse, to_picture
from litlab.data.module import LoaderError
from litlab.data.sampler import EpochSampler
from litlab.data.scores import classification_scores
from litlab.data.store import open_array, write_array
from litlab.util.progress import progress_bar

_BLOCK = 2**26  # bytes of images that are decoded at a time, and 2,048 images at most


Read = Callable[[Tensor], tuple[list[str], Sequence[Path | bytes], Tensor | None]]


class Stored(NamedTuple):
    """The images of a data set, with what is known of each.

    Args:
        images: uint8 of shape (image, channel, height, width), mapped into memory.
        labels: int64 of shape (image,).
        given: The split that each is in so far, str of shape (image,).
        places: Which of the listed files each is, int64 of shape (image,).
        moments: As of `moments`.
        digests: Equal for equal images, uint64 of shape (image,).
    """

    images: Tensor
    labels: np.ndarray
    given: np.ndarray
    places: np.ndarray
    moments: np.ndarray
    digests: np.ndarray


def store_images(folder: Path, shape: tuple[int, int, int], blocks: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Write images into a cache.

    Args:
        folder: The cache.
        shape: (channel, height, width).
        blocks: uint8 of shape (some, channel, height, width).

    Returns:
        Their ``moments`` and ``digests``.
    """
    sums, digests = [], []

    def measure() -> Iterator[np.ndarray]:
        for block in blocks:
            sums.append(moments(block))
            digests.extend(hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in block)
            yield block

    write_array(folder / "images.npy", shape, measure())
    return {"moments": np.concatenate(sums), "digests": np.frombuffer(b"".join(digests), np.uint64)}


def open_images(folder: Path) -> Stored:
    """Open a cache: the images that `store_images` has written, and ``facts.npz`` with all else that `Stored` has."""
    with np.load(folder / "facts.npz", allow_pickle=False) as facts:
        return Stored(images=torch.from_numpy(open_array(folder / "images.npy")), **facts)


def decode_blocks(
    files: Sequence[Path], form: ImageFormat, where: object, kept: list[int], *, drop: bool
) -> Iterator[np.ndarray]:
    """Decode files, and look at all of them before anything is said of those that are bad.

    Args:
        files: The files.
        form: The format that they get.
        where: What messages call the data.
        kept: Gets the places of those that are decoded.
        drop: Whether those that can't be read are left out; else they are an error.

    Yields:
        uint8 of shape (some, channel, height, width).

    Raises:
        UserError: Files can't be used.
    """
    size = max(1, min(2048, _BLOCK // int(np.prod(form.shape))))
    bad: dict[str, Exception] = {}
    with progress_bar(total=len(files), desc="decoding images") as progress:
        for start in range(0, len(files), size):
            images = []
            for place, result in enumerate(decode_all(files[start : start + size], form), start):
                if isinstance(result, Exception):
                    bad[str(files[place])] = result
                else:
                    kept.append(place)
                    images.append(result)
            if images:
                yield np.stack(images)
            progress.update(size)
    if not drop or not kept or any(isinstance(error, OddImage) for error in bad.values()):
        refuse(bad, len(files), form, where)
    if bad:
        rank_zero_info(f"{where}: {len(bad):,} images that can't be read are left out (data.bad_rows)")


def conform_blocks(images: np.ndarray, form: ImageFormat) -> Iterator[np.ndarray]:
    """Bring decoded images, uint8 of shape (image, channel, height, width), to a format, some at a time."""
    for start in range(0, len(images), 2048):
        block = images[start : start + 2048]
        if block.shape[1:] != form.shape:
            block = np.stack([conform(to_picture(image), form) for image in block])
        yield block


def moments(images: np.ndarray) -> np.ndarray:
    """Sum and sum of squares of the pixels per image and channel: from them follow mean and deviation of any split.

    Returns:
        int64 of shape (image, channel, 2), for images of shape (image, channel, height, width).
    """
    pixels = images.reshape(*images.shape[:2], -1).astype(np.int64)
    return np.stack((pixels.sum(-1), np.einsum("icp,icp->ic", pixels, pixels)), axis=-1)


def mean_std(sums: np.ndarray, pixels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel, on a scale of 0 to 1, from `moments` and the pixels of an image.

    A channel that never changes gets the deviation of one grey level, not 0.
    """
    total, squares = sums.sum(0, dtype=np.float64).T / (len(sums) * pixels)
    std = np.sqrt(np.maximum(squares - total**2, 1.0))
    return cast(list[float], (total / 255).tolist()), cast(list[float], (std / 255).tolist())


def warn_of_copies(stored: Stored, rows: dict[str, np.ndarray], files: Sequence[Path], where: object) -> None:
    """Tell of images that are in training and evaluation, or in two classes.

    Args:
        stored: The images.
        rows: Which of them are in each split, int64 of shape (sample,).
        files: The listed files.
        where: What messages call the data.
    """

    def name(image: Any) -> Path:
        return files[int(stored.places[image])]

    _, first, group = np.unique(stored.digests, return_index=True, return_inverse=True)
    held_out = np.concatenate([part for split, part in rows.items() if split != "train"] or [np.empty(0, np.int64)])
    copies = held_out[np.isin(group[held_out], group[rows["train"]])]
    if len(copies):
        rank_zero_info(
            f"warning: {where}: {len(copies):,} images for validation or test are copies of training images, such as "
            f"{name(copies[0])}: results look better than they are"
        )
    other = np.flatnonzero(stored.labels != stored.labels[first][group])
    if len(other):
        rank_zero_info(
            f"warning: {where}: {len(other):,} images are copies of images in another class, such as {name(other[0])} "
            f"of {name(first[group[other[0]]])}; delete the wrong ones"
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
        if self.rows is None and not pad:
            return self  # the pages of the file serve as memory, and are shared between processes
        _, channels, height, width = self.images.shape
        shape = len(self), channels, height + 2 * pad, width + 2 * pad
        if int(np.prod(shape)) * processes > psutil.virtual_memory().available / 4:
            return self
        copy = torch.empty(shape, dtype=torch.uint8)
        rows = torch.arange(len(self)) if self.rows is None else self.rows
        for part, some in zip(copy.split(4096), rows.split(4096), strict=True):
            part.copy_(reflect_pad(self.images.index_select(0, some), pad))
        return StoredImages(copy, self.labels)

    def on_device(self, device: torch.device, share: float) -> "StoredImages":
        """Copy the images to a device where they fit into a share of its free memory.

        Returns:
            The copy, or these images where they don't fit or the device is the CPU.
        """
        if device.type == "cpu" or self.rows is not None or self.images.nbytes > share * _free(device):
            return self
        return StoredImages(self.images.to(device), self.labels.to(device))


def _free(device: torch.device) -> int:
    """Bytes of memory that are free on a device; 0 for kinds of device that don't tell."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0


class LazyImages(Dataset[dict[str, Tensor]]):
    """Images of one split; indexed by a tensor, it returns a batch.

    Args:
        size: How many there are.
        read: Returns names, files and labels of some images, by their numbers, int64 of shape (some,).
        form: The format that they get.
        transforms: What changes each image, drawn by (seed, epoch, number) alone, where a loader reads them.
    """

    sampler: EpochSampler | None = None  # of the loader that has this copy: it knows seed and epoch

    def __init__(self, size: int, read: Read, form: ImageFormat, transforms: Sequence[nn.Module] = ()) -> None:
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
            LoaderError: An image is damaged, or unlike the others, or a transform does not suit it.
        """
        names, sources, labels = self.read(index % self.size)
        if self.transforms and self.sampler is not None:
            draws = [f"{self.sampler.seed} {self.sampler.epoch} {number}" for number in index.tolist()]
            changes = [partial(change_image, self.transforms, draw) for draw in draws]
            results = [decode(source, self.form, change) for source, change in zip(sources, changes, strict=True)]
        else:
            results = decode_all(sources, self.form)
        bad = {name: found for name, found in zip(names, results, strict=True) if isinstance(found, Exception)}
        refuse(bad, len(index), self.form, "data.path", LoaderError)
        batch = {"image": torch.from_numpy(np.stack(results)), "index": index}  # pyright: ignore
        return batch if labels is None else batch | {"label": labels}


def read_files(files: Sequence[Path], labels: Tensor | None, numbers: Tensor) -> tuple:
    """Return names, paths and labels of image files, as `LazyImages` asks for them."""
    some = [files[number] for number in numbers.tolist()]
    return list(map(str, some)), some, None if labels is None else labels[numbers]


def change_image(transforms: Sequence[nn.Module], draw: str, picture: Picture) -> Picture:
    """Apply transforms to an image as it is in its file.

    Args:
        transforms: Of uint8 images of shape (channel, height, width), such as those of ``torchvision.transforms.v2``.
        draw: What their random numbers follow from.
        picture: The image.

    Raises:
        LoaderError: They return something else.
    """
    image = torch.from_numpy(np.array(picture)).reshape(picture.height, picture.width, -1).permute(2, 0, 1)
    channels = len(image)
    with draw_by(draw):
        for transform in transforms:
            image = transform(image)
    if not isinstance(image, Tensor) or image.dtype != torch.uint8 or image.shape[:-2] != (channels,):
        kind = f"{image.dtype} {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise LoaderError(
            f"data.transform: the last one returns {kind}, not uint8 ({channels}, height, width); leave out what "
            "changes the type or normalises, which is done afterwards"
        )
    return to_picture(image.numpy())


@contextmanager
def draw_by(draw: str) -> Iterator[None]:
    """Let random numbers of torch and Python follow from a text, and go on afterwards as if none had been drawn."""
    seed = int.from_bytes(hashlib.blake2b(draw.encode(), digest_size=8).digest(), "big") >> 1
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


def classify_by_mean(train: StoredImages, test: StoredImages, num_classes: int) -> dict[str, float]:
    """Give each test image the class whose mean training image is nearest (Rocchio 1971).

    Returns:
        ``test/acc`` and ``test/f1`` (macro), from 0 to 1.
    """

    def read_blocks(images: StoredImages) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.arange(len(images)).split(2048):
            batch = images[index]
            yield batch["image"].flatten(1).float() / 255, batch["label"]

    sums = torch.zeros(num_classes, train.images[0].numel())
    for pixels, labels in read_blocks(train):
        sums.index_add_(0, labels, pixels)
    means = sums / train.labels.bincount(minlength=num_classes)[:, None]  # NaN without images: it is never the nearest
    distances = (torch.cdist(pixels, means).nan_to_num(torch.inf) for pixels, _ in read_blocks(test))
    predicted = torch.cat([some.argmin(1) for some in distances])
    return classification_scores(predicted.numpy(), test.labels.numpy())
