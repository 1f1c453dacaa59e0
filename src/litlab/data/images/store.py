"""Images in batches: decoded once into a cache and mapped into memory from there, or decoded for
each batch.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils.data import Dataset

from litlab.data.files import Policy, drop_bad_rows
from litlab.data.images.augment import reflect_pad
from litlab.data.images.decode import ImageMetadata, Picture, decode
from litlab.data.module import LoaderError
from litlab.data.store import progress_bar
from litlab.metrics import classification_scores

_BLOCK = 128  # images that are handled at a time


def decode_all(
    sources: Any, form: ImageMetadata, policy: Policy
) -> Iterator[tuple[int, np.ndarray]]:
    """Decode images, and look at all of them before anything is said of those that are bad.

    Args:
        sources: The images, each a `Source`.
        form: The format that they get.
        policy: Whether bad ones are an error or left out.

    Yields:
        Number and pixels, uint8 of shape (channel, height, width), of each good one.

    Raises:
        UserError: Images can't be used.
    """
    import pandas as pd

    problems: dict[Any, str] = {}
    with ThreadPoolExecutor() as pool:
        for start in progress_bar(
            range(0, len(sources), _BLOCK), desc="decoding images", unit_scale=_BLOCK
        ):
            block = sources[start : start + _BLOCK]
            for number, image in enumerate(pool.map(partial(decode, form=form), block), start):
                if isinstance(image, str):
                    problems[sources[number]] = image
                else:
                    yield number, image
    if problems:
        drop_bad_rows(pd.DataFrame(index=list(sources)), problems, policy, "data.path", "image")


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
        images: uint8 of shape (stored, channel, height, width), in memory, mapped from a file, or
            on a device.
        rows: Which of them are the samples, int64 of shape (samples,).
        labels: int64 of shape (samples,); None in prediction.
    """

    images: Any
    rows: Tensor
    labels: Any = None

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the samples, int64 of shape (batch,), on the CPU.

        To a number can be added a multiple of `len(self)`: the same sample then gets another
        augmentation.

        Returns:
            image: uint8 (batch, channel, height, width); index: the numbers, int64 (batch,); and
                but in prediction
            label: int64 (batch,).
        """
        index = index.to(self.device, non_blocking=True)
        samples = index % len(self)
        batch = {"image": self.take(self.rows.index_select(0, samples), index), "index": index}
        return (
            batch
            if self.labels is None
            else {**batch, "label": self.labels.index_select(0, samples)}
        )

    def take(self, rows: Tensor, index: Tensor) -> Tensor:
        """Return the images of a batch, by their rows in `images`."""
        return self.images.index_select(0, rows)

    def copy(self, pad: int, device: torch.device) -> "StoredImages":
        """Copy the samples to a device, in order, with so many pixels added by reflection on each
        side.
        """
        images = torch.cat(
            [reflect_pad(self.images[rows], pad) for rows in self.rows.split(_BLOCK)]
        )
        return StoredImages(
            images.to(device), torch.arange(len(self), device=device), self.labels.to(device)
        )


@dataclass(eq=False)
class LazyImages(StoredImages):
    """Images that are decoded whenever they come into a batch.

    Args:
        images: A NumPy array of files or pixels, or what returns some by their rows, as
            `Shards.read`.
        rows: As of `StoredImages`.
        labels: As of `StoredImages`.
        form: The format that they get.
        transforms: What changes each image, uint8 of shape (channel, height, width), in its
            original size. What they draw from Python's or torch's generator follows from (seed,
            epoch, number) alone.
        sampler: The `EpochSampler` of the loader that has this copy: it knows seed and epoch.
    """

    form: ImageMetadata = field(kw_only=True)
    transforms: Sequence[nn.Module] = ()
    sampler: Any = None

    def take(self, rows: Tensor, index: Tensor) -> Tensor:
        """Decode images.

        Raises:
            LoaderError: An image is damaged, or unlike the others, or a transform returns no uint8.
        """
        images = []
        sources: Any = self.images(rows) if callable(self.images) else self.images[rows.numpy()]
        for number, source in zip(index.tolist(), sources, strict=True):
            image = decode(
                source, self.form, partial(self._change, number) if self.transforms else None
            )
            if isinstance(image, str):
                name = source if isinstance(source, Path) else f"image {number}"
                raise LoaderError(f"data.path: {name}: {image}; replace or delete it")
            images.append(image)
        return torch.from_numpy(np.stack(images))

    def _change(self, number: int, picture: Picture) -> Picture:
        """Apply the transforms to an image; afterwards random numbers go on as if none had been
        drawn.
        """
        from torchvision.transforms.v2.functional import pil_to_tensor, to_pil_image

        with isolate_rng(include_cuda=False):
            random.seed(f"{self.sampler.seed} {self.sampler.epoch} {number}")
            torch.default_generator.manual_seed(random.getrandbits(63))
            image = nn.Sequential(*self.transforms)(pil_to_tensor(picture))
        if image.dtype != torch.uint8:
            raise LoaderError(
                f"data.transform: the last one returns {image.dtype}, not uint8; leave out what "
                "changes the type or normalises, which is done afterwards"
            )
        return to_pil_image(image)


def classify_by_mean(train: StoredImages, test: StoredImages) -> dict[str, float]:
    """Give each test image the class whose mean training image is nearest (Rocchio 1971).

    Returns:
        ``test/acc`` and ``test/f1`` (macro), from 0 to 1.
    """
    sums = torch.zeros(1 + int(train.labels.max()), train.images[0].numel())
    for rows, labels in zip(train.rows.split(_BLOCK), train.labels.split(_BLOCK), strict=True):
        sums.index_add_(0, labels, train.images[rows].flatten(1).float())
    means = sums / train.labels.bincount()[:, None]  # NaN for a class without images
    blocks = (test.images[rows].flatten(1).float() for rows in test.rows.split(_BLOCK))
    nearest = torch.cat(
        [torch.cdist(block, means).nan_to_num(torch.inf).argmin(1) for block in blocks]
    )
    return classification_scores(nearest.numpy(), test.labels.numpy())
