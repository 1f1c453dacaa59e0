"""Images in batches: decoded once into a cache and mapped into memory from there, or decoded for
each batch.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.utils.data import Dataset

from litlab.data.files import Frame
from litlab.data.images.augment import reflect_pad
from litlab.data.images.decode import ImageMetadata, Images, Picture, decode, map_images
from litlab.errors import LoaderError

_BLOCK = 128  # images that are handled at a time


def decode_all(images: Images, count: int, form: ImageMetadata, file: Path | None) -> Frame:
    """Decode images, and write their pixels.

    Args:
        images: The images.
        count: How many there are.
        form: The format that they get.
        file: Gets uint8 of shape (image, channel, height, width), as `numpy.load` reads it; None:
            they are only looked at.

    Returns:
        The ``digest`` of each image's pixels, and its ``problem``, missing where it has none.
    """
    import pandas as pd

    stored = None
    if file is not None:
        # Written image by image: together they may be larger than the memory
        shape = count, *form.image_shape
        stored = np.lib.format.open_memmap(file, "w+", np.uint8, shape)
    digests, problems = np.zeros(count, np.uint64), {}
    for number, image in map_images(partial(decode, form=form), images, range(count)):
        if isinstance(image, str):
            problems[number] = image
            continue
        digest = hashlib.blake2b(image.tobytes(), digest_size=8).digest()
        digests[number] = int.from_bytes(digest, "big")
        if stored is not None:
            stored[number] = image
    facts = pd.DataFrame({"digest": digests})
    facts["problem"] = pd.Series(problems, dtype=object)
    return facts


def measure_colours(images: Iterable[np.ndarray]) -> list[list[float]]:
    """Measure mean and standard deviation per channel, on a scale of 0 to 1.

    A channel that never changes gets the deviation of one grey level, not 0.

    Args:
        images: uint8 of shape (channel, height, width) each.
    """
    # Of each image mean and mean square, (2, channel): no more than that is kept of it
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
        positions: Which of them are the samples, int64 of shape (samples,).
        targets: Those of the samples, as `Target.encode` returns them; None in prediction.
    """

    images: Any
    positions: Tensor
    targets: Any = None

    @property
    def device(self) -> torch.device:
        return self.positions.device

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the samples, int64 of shape (batch,), on the CPU.

        To a number can be added a multiple of `len(self)`: the same sample then gets another
        augmentation.

        Returns:
            image: uint8 (batch, channel, height, width); index: the numbers, int64 (batch,); and
                but in prediction
            target: Those of the samples.
        """
        # Whole batches: one call for the images, one for the targets. The number goes on, with its
        # multiple, as augmentation draws by it
        index = index.to(self.device, non_blocking=True)
        samples = index % len(self)
        batch = {"image": self.take(self.positions.index_select(0, samples), index), "index": index}
        if self.targets is not None:
            batch["target"] = self.targets.index_select(0, samples)
        return batch

    def take(self, positions: Tensor, index: Tensor) -> Tensor:
        """Return the images of a batch, by their positions in `images`."""
        # Of a mapped file only the pages of these images are read
        return self.images.index_select(0, positions)

    def copy(self, pad: int, device: torch.device) -> "StoredImages":
        """Copy the samples to a device, in order, with so many pixels added by reflection on each
        side.
        """
        # In blocks, as padding is done in float32, which takes four times the memory
        blocks = self.positions.split(_BLOCK)
        images = torch.cat([reflect_pad(self.images[block], pad) for block in blocks])
        return StoredImages(
            images.to(device), torch.arange(len(self), device=device), self.targets.to(device)
        )


@dataclass(eq=False)
class LazyImages(StoredImages):
    """Images that are decoded whenever they come into a batch.

    Args:
        images: An `Images`.
        positions: As of `StoredImages`.
        targets: As of `StoredImages`.
        form: The format that they get.
        transforms: What changes each image, uint8 of shape (channel, height, width), in its
            original size. What they draw from Python's or torch's generator follows from (seed,
            epoch, number) alone.
        sampler: The `EpochSampler` of the loader that has this copy: it knows seed and epoch.
    """

    form: ImageMetadata = field(kw_only=True)
    transforms: Sequence[nn.Module] = ()
    sampler: Any = None

    def take(self, positions: Tensor, index: Tensor) -> Tensor:
        """Decode images.

        Raises:
            LoaderError: An image is damaged, or unlike the others, or a transform returns no uint8.
        """
        images = []
        for number, source in zip(index.tolist(), self.images[positions.numpy()], strict=True):
            change = partial(self._change, number) if self.transforms else None
            image = decode(source, self.form, change)
            if isinstance(image, str):
                name = source if isinstance(source, Path) else f"image {number}"
                raise LoaderError(
                    f"data.path: {name}: {image}; replace or delete it, or use --data.bad_rows drop"
                )
            images.append(image)
        return torch.from_numpy(np.stack(images))

    def _change(self, number: int, picture: Picture) -> Picture:
        """Apply the transforms to an image; afterwards random numbers go on as if none had been
        drawn.
        """
        from torchvision.transforms.v2.functional import pil_to_tensor, to_pil_image

        # Transforms draw from the global generators. These are seeded for each image, so that it
        # gets the same in a resumed run and with any number of workers, and put back afterwards
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


def find_nearest_mean(train: StoredImages, test: StoredImages) -> np.ndarray:
    """Return the class whose mean training image is nearest to each test image (Rocchio 1971),
    int64 of shape (image,).
    """
    # Sums of each class, then distances, a block of images at a time
    labels = train.targets
    sums = torch.zeros(1 + int(labels.max()), train.images[0].numel())
    for block, images in zip(labels.split(_BLOCK), _flatten(train), strict=True):
        sums.index_add_(0, block, images)
    means = sums / labels.bincount()[:, None]  # NaN for a class without images
    nearest = [
        torch.cdist(images, means).nan_to_num(torch.inf).argmin(1) for images in _flatten(test)
    ]
    return torch.cat(nearest).numpy()


def _flatten(samples: StoredImages) -> Iterator[Tensor]:
    for block in samples.positions.split(_BLOCK):
        yield samples.images[block].flatten(1).float()
