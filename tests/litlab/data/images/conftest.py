"""Small image folders."""

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import torch
from PIL import Image

from litlab.data import ImageData
from litlab.data.images import PublicImages

_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
_IDX = tuple(f"MNIST/raw/{part}-ubyte.gz" for part in _PARTS)
_FINE = tuple(f"class{number:02}" for number in range(100))
_COARSE = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SHAPE = (3, 32, 32)
PUBLIC_SETS = {  # two kinds of files that torchvision reads
    "cifar10": PublicImages("cifar10", "CIFAR10", "cifar-10-batches-py", ("cifar-10-python.tar.gz",), _COARSE, _SHAPE),
    "cifar100": PublicImages("cifar100", "CIFAR100", "cifar-100-python", ("cifar-100-python.tar.gz",), _FINE, _SHAPE),
    "mnist": PublicImages(
        "mnist",
        "MNIST",
        "MNIST",
        tuple(f"MNIST/raw/{part}-ubyte.gz" for part in _PARTS),
        tuple("0123456789"),
        (1, 28, 28),
    ),
}


def named(name: str) -> type[ImageData]:
    """The DataModule of a public data set."""
    return type(name, (ImageData,), {"public": PUBLIC_SETS[name]})


def write_image(path: Path, size: tuple[int, int] = (8, 6), mode: str = "RGB", value: int | None = None, seed: int = 0):
    """Write a random image, or one of a single value; size is (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = size if mode == "L" else (*size, len(mode))
    pixels = np.random.default_rng(seed).integers(0, 256, shape) if value is None else np.full(shape, value)
    Image.fromarray(pixels.astype(np.uint8), mode).save(path)


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """train/ with 20 cats and 10 dogs, test/ with 4 and 2, all 8 x 6 pixels."""
    root = tmp_path / "pets"
    for split, cats, dogs in (("train", 20, 10), ("test", 4, 2)):
        for name, count in (("cat", cats), ("dog", dogs)):
            for i in range(count):
                write_image(root / split / name / f"{i:02}.png", seed=crc32(f"{split} {name} {i}".encode()))
    return root


@pytest.fixture
def make_data(tmp_path: Path) -> Callable[..., ImageData]:
    def make(**options) -> ImageData:
        settings = {"dataset": "cifar10", "cache_dir": str(tmp_path / "cache"), "batch_size": 4, **options}
        if settings["dataset"] in PUBLIC_SETS:
            return named(settings.pop("dataset"))(**settings)
        return ImageData(**settings)

    return make


def folder_data(make_data: Callable[..., ImageData], root: Path, **options) -> ImageData:
    """The DataModule of a folder of one's own."""
    return make_data(dataset="folder", path=str(root), **options)


def pixels(path: Path) -> torch.Tensor:
    """The image in a file, uint8 of shape (channel, height, width)."""
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)
