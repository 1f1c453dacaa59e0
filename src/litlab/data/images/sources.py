"""Where images come from: the user's files, a public data set, or made up; each read split by split into the cache."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from litlab.data.bad_rows import BadRows, Policy
from litlab.data.images.copies import check_copies
from litlab.data.images.decode import ImageFormat, conform, decode_blocks
from litlab.data.images.generated import generated_class_names, generated_images
from litlab.data.images.listing import Listing
from litlab.data.images.public import PublicImages

_VERSION = 1  # raise it when the arrays of the same source would come out different
_GENERATED = {"train": 10_000, "test": 2_000}


@dataclass(frozen=True)
class Part:
    """One split on its way into the cache.

    Args:
        labels: Class of each image, int64 of shape (images,).
        blocks: Starts the decoding; yields uint8 blocks (some, channel, height, width).
        files: Where each image comes from; empty where none can be damaged.
        bad: Where the decoding notes damaged files, which it leaves out.
    """

    labels: Tensor
    blocks: Callable[[], Iterable[np.ndarray]]
    files: list[Path] = field(default_factory=list)
    bad: BadRows | None = None

    def kept_labels(self) -> Tensor:
        """After the decoding: the labels of the images that are not left out."""
        if not self.bad:
            return self.labels
        return self.labels[torch.tensor([str(file) not in self.bad for file in self.files])]


@dataclass(frozen=True)
class Source:
    """Images that can be cached.

    Args:
        name: Short name, part of the cache's.
        digest: Changes whenever the decoded arrays would.
        shape: (channel, height, width).
        class_names: Name of each class.
        parts: Reads the splits.
        dropped: Number of bad rows that were left out already.
    """

    name: str
    digest: str
    shape: tuple[int, int, int]
    class_names: list[str]
    parts: Callable[[], dict[str, Part]]
    dropped: int = 0

    @property
    def cache_name(self) -> str:
        """Name of the cache of this source."""
        digest = hashlib.sha256(repr((_VERSION, self.digest, self.shape)).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}"


def listed_source(path: Path, listing: Listing, form: ImageFormat, bad_rows: Policy) -> Source:
    """Describe the user's own images, which a folder or CSV file lists."""

    def parts() -> dict[str, Part]:
        check_copies(listing)
        bad, result = BadRows(path, bad_rows, "image"), {}
        for split, names in listing.files.items():
            files = [listing.root / name for name in names]
            result[split] = Part(listing.labels[split], partial(decode_blocks, files, form, bad), files, bad)
        return result

    marks = f"{listing.fingerprint} {form}" + " drop" * (bad_rows == "drop")
    return Source(path.stem[:60], marks, form.shape, listing.class_names, parts, listing.dropped)


def public_source(public: PublicImages, root: Path, form: ImageFormat) -> Source:
    """Describe a public data set. Its contents are known by checksum, so the cache is good without the files."""

    def blocks(images: np.ndarray) -> Iterator[np.ndarray]:
        from PIL import Image

        for start in range(0, len(images), 4096):
            block = images[start : start + 4096]
            if form.shape != public.shape:
                pictures = (Image.fromarray(i[0] if public.shape[0] == 1 else i.transpose(1, 2, 0)) for i in block)
                block = np.stack([conform(picture, form) for picture in pictures])
            yield block

    def parts() -> dict[str, Part]:
        return {split: Part(labels, partial(blocks, images)) for split, (images, labels) in public.read(root).items()}

    return Source(public.name, f"{public.name} {form}", form.shape, list(public.class_names), parts)


def generated_source(num_classes: int, shape: tuple[int, int, int]) -> Source:
    """Describe generated images of a shape (channel, height, width)."""

    def parts() -> dict[str, Part]:
        result = {}
        for seed, (split, count) in enumerate(_GENERATED.items()):
            images, labels = generated_images(count, num_classes, shape, seed)
            result[split] = Part(labels, lambda images=images: [images.numpy()])
        return result

    return Source("generated", f"{num_classes} {_GENERATED}", shape, generated_class_names(num_classes), parts)
