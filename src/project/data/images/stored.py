"""From image files to a cache of decoded arrays, and back from there."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from project.data.cache import damage, new_cache, open_array, write_array
from project.data.images.copies import check_copies
from project.data.images.decode import ImageFormat, conform, decode_blocks
from project.data.images.generated import generated_class_names, generated_images
from project.data.images.listing import Listing
from project.data.images.memory import moments
from project.data.images.public import read
from project.data.progress import SlowProgress

_VERSION = 1  # raise it when the arrays of the same source would come out different
_GENERATED = {"train": 10_000, "test": 2_000}


@dataclass(frozen=True)
class Part:
    """One split on its way into the cache.

    Args:
        labels: Class of each image, int64 of shape (images,).
        blocks: Starts the decoding; yields uint8 blocks (some, channel, height, width).
    """

    labels: Tensor
    blocks: Callable[[], Iterable[np.ndarray]]


@dataclass(frozen=True)
class Source:
    """Images that can be cached.

    Args:
        name: Short name, part of the cache's.
        digest: Changes whenever the decoded arrays would.
        shape: (channel, height, width).
        class_names: Name of each class.
        parts: Reads the splits.
    """

    name: str
    digest: str
    shape: tuple[int, int, int]
    class_names: list[str]
    parts: Callable[[], dict[str, Part]]

    def folder(self, cache_dir: Path) -> Path:
        """Where the cache of this source is.

        Args:
            cache_dir: Folder of all caches.
        """
        digest = hashlib.sha256(repr((_VERSION, self.digest, self.shape)).encode()).hexdigest()
        return cache_dir / f"{self.name}-{digest[:12]}"


def listed_source(name: str, listing: Listing, form: ImageFormat) -> Source:
    """Describe the user's own images.

    Args:
        name: Short name.
        listing: The files.
        form: The format wanted.
    """

    def parts() -> dict[str, Part]:
        check_copies(listing)
        return {
            split: Part(listing.labels[split], partial(decode_blocks, [listing.root / file for file in files], form))
            for split, files in listing.files.items()
        }

    return Source(name, f"{listing.fingerprint} {form}", form.shape, listing.class_names, parts)


def public_source(
    name: str, root: Path, class_names: list[str], native: tuple[int, int, int], form: ImageFormat
) -> Source:
    """Describe a public data set. Its contents are known by checksum, so the cache is good without the files.

    Args:
        name: Key of `PUBLIC_SETS`.
        root: Folder of the files.
        class_names: Name of each class.
        native: (channel, height, width) of the files.
        form: The format wanted.
    """

    def blocks(images: np.ndarray) -> Iterator[np.ndarray]:
        from PIL import Image

        for start in range(0, len(images), 4096):
            block = images[start : start + 4096]
            if form.shape != native:
                pictures = (Image.fromarray(i[0] if native[0] == 1 else i.transpose(1, 2, 0)) for i in block)
                block = np.stack([conform(picture, form) for picture in pictures])
            yield block

    def parts() -> dict[str, Part]:
        return {split: Part(labels, partial(blocks, images)) for split, (images, labels) in read(name, root).items()}

    return Source(name, f"{name} {form}", form.shape, class_names, parts)


def generated_source(num_classes: int, shape: tuple[int, int, int]) -> Source:
    """Describe generated images.

    Args:
        num_classes: Number of classes.
        shape: (channel, height, width).
    """

    def parts() -> dict[str, Part]:
        result = {}
        for seed, (split, count) in enumerate(_GENERATED.items()):
            images, labels = generated_images(count, num_classes, shape, seed)
            result[split] = Part(labels, lambda images=images: [images.numpy()])
        return result

    return Source("generated", f"{num_classes} {_GENERATED}", shape, generated_class_names(num_classes), parts)


@dataclass(frozen=True)
class Stored:
    """The contents of a cache.

    Args:
        images: For each split uint8 (image, channel, height, width), mapped from the file.
        labels: For each split int64 (image,).
        sums: For each split what `moments` returned, (image, channel, 2).
        shape: (channel, height, width).
        class_names: Name of each class.
    """

    images: dict[str, Tensor]
    labels: dict[str, Tensor]
    sums: dict[str, np.ndarray]
    shape: tuple[int, int, int]
    class_names: list[str]


def store(source: Source, cache_dir: Path) -> None:
    """Decode a source into its cache.

    Args:
        source: The images.
        cache_dir: Folder of all caches.

    Raises:
        UserError: An image is unreadable or odd, or the cache can't be written.
    """
    parts = source.parts()
    total = sum(len(part.labels) for part in parts.values())
    meta: dict[str, Any] = {"name": source.name, "class_names": source.class_names, "shape": source.shape}
    with (
        new_cache(source.folder(cache_dir), total * int(np.prod(source.shape))) as folder,
        SlowProgress(total, "decoding images") as progress,
    ):
        for split, part in parts.items():
            sums: list[np.ndarray] = []

            def watched(blocks: Iterable[np.ndarray], sums: list[np.ndarray] = sums) -> Iterator[np.ndarray]:
                for block in blocks:
                    sums.append(moments(block))
                    yield block
                    progress.advance(len(block))

            write_array(folder / f"{split}_images.npy", (len(part.labels), *source.shape), watched(part.blocks()))
            np.save(folder / f"{split}_labels.npy", part.labels.numpy())
            np.save(folder / f"{split}_sums.npy", np.concatenate(sums))
        meta["images"] = {split: len(part.labels) for split, part in parts.items()}
        (folder / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


def load(source: Source, cache_dir: Path) -> Stored:
    """Open the cache of a source; the images are read from it as they are used.

    Args:
        source: The images.
        cache_dir: Folder of all caches.

    Raises:
        RuntimeError: There is no whole cache.
    """
    folder = source.folder(cache_dir)
    fault = damage(folder, quick=True)
    if fault:
        raise RuntimeError(f"{folder}: {fault}; prepare_data() makes this cache")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))

    def arrays(kind: str) -> dict[str, np.ndarray]:
        return {split: open_array(folder / f"{split}_{kind}.npy") for split in meta["images"]}

    return Stored(
        images={split: torch.from_numpy(array) for split, array in arrays("images").items()},
        labels={split: torch.from_numpy(array) for split, array in arrays("labels").items()},
        sums=arrays("sums"),
        shape=source.shape,
        class_names=meta["class_names"],
    )
