"""Images on their way into shards: as the bytes of image files, which are decoded when they are read."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from litlab.data.images.decode import ImageFormat
from litlab.data.images.lazy import FileImages, decoded
from litlab.data.images.memory import StoredImages, mean_std, moments
from litlab.data.images.metadata import ImageMetadata
from litlab.data.shards import write_about, write_split

_BLOCK = 256  # images that are read and decoded at a time
Files = Callable[[Tensor], tuple[list[str], list[bytes]]]  # names and bytes of some images, by their numbers (images,)


def write_image_shards(
    folder: Path,
    size: int,
    metadata: ImageMetadata,
    form: ImageFormat,
    images: Mapping[str, Files],
    labels: Mapping[str, Tensor],
) -> None:
    """Write images into shards: those to train on in random order, as a folder lists them class by class.

    Each is decoded once, to find damaged ones and to measure the colours of all training images.

    Args:
        folder: The folder to fill.
        size: Bytes of a shard.
        metadata: Metadata of the images; mean and standard deviation are measured anew.
        form: The format that they get when they are read.
        images: The images of each split.
        labels: Their classes, int64 of shape (images,).

    Raises:
        LoaderError: An image is damaged, or unlike the others.
    """
    sums: list[np.ndarray] = []

    def samples(split: str) -> Iterator[dict[str, bytes | int]]:
        generator = torch.Generator().manual_seed(0)
        count = len(labels[split])
        every = torch.randperm(count, generator=generator) if split == "train" else torch.arange(count)
        for places in every.split(_BLOCK):
            names, files = images[split](places)
            array = decoded([io.BytesIO(file) for file in files], names, form).numpy()
            if split == "train":
                sums.append(moments(array))
            for file, label in zip(files, labels[split][places].tolist(), strict=True):
                yield {"image": file, "label": label}

    splits = {split: write_split(folder / split, samples(split), len(labels[split]), size) for split in images}
    mean, std = mean_std(np.concatenate(sums), form.height * form.width)
    known = replace(metadata, mean=mean, std=std).state_dict()
    write_about(folder, {"kind": "images", "metadata": known, "splits": splits})


def in_files(images: FileImages) -> Files:
    """Return what reads image files as they are."""

    def read(places: Tensor) -> tuple[list[str], list[bytes]]:
        files = [images.files[place] for place in places.tolist()]
        return list(map(str, files)), [file.read_bytes() for file in files]

    return read


def as_png(images: StoredImages) -> Files:
    """Return what makes PNG files of decoded images."""
    from PIL import Image

    def encode(places: Tensor) -> tuple[list[str], list[bytes]]:
        files = []
        for image in images[places]["image"].numpy():
            stream = io.BytesIO()
            Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(stream, "PNG")
            files.append(stream.getvalue())
        return [f"image {place}" for place in places.tolist()], files

    return encode
