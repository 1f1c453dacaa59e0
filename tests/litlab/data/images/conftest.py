"""Small image folders."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from litlab.data import ImageData, PublicImages
from tests.litlab.data.conftest import prepared


class Digits(ImageData):
    public = PublicImages("mnist", "MNIST", ("MNIST.zip",), tuple("0123456789"), (1, 28, 28))


def write_image(path: Path, size=(8, 6), mode="RGB", value=None, seed=0) -> None:
    """Write a random image, or one of a single value; size is (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = size if len(mode) == 1 else (*size, len(mode))
    noise = np.random.default_rng(seed).integers(0, 256, shape)
    pixels = noise if value is None else np.full(shape, value)
    Image.fromarray(pixels.astype(np.uint8), mode).save(path)


def write_images(folder: Path, count: int, **options) -> None:
    """Images of the classes a and b in turn; an option may be a function of an image's number."""
    for number in range(count):
        own = {
            name: value(number) if callable(value) else value
            for name, value in {"seed": count + number, **options}.items()
        }
        write_image(folder / "ab"[number % 2] / f"{number:03}.png", **own)


@pytest.fixture
def pets() -> Path:
    """train/ with 20 cats and 10 dogs, test/ with 4 and 2, all 8 x 6 pixels."""
    counts = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 2}
    for seed, (folder, count) in enumerate(counts.items()):
        for number in range(count):
            file = Path("pets", folder, f"{number:02}.png")
            write_image(file, seed=100 * seed + number)
    return Path("pets")


def make(path=None, kind=ImageData, **settings) -> ImageData:
    return kind(path=path, **{"batch_size": 4} | settings)


def pixels(path: str | Path) -> torch.Tensor:
    """The image in a file, uint8 of shape (channel, height, width)."""
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def take(data: ImageData, split: str = "train", number: int = 0) -> np.ndarray:
    """An image of a split as it is kept, uint8 of shape (channel, height, width)."""
    return data.samples(split)[torch.tensor([number])]["image"][0].numpy()


def open_files(files: list[Path], **settings) -> ImageData:
    """Data of some image files, all to train on, in two classes by turns."""
    frame = pd.DataFrame(
        {"file": map(str, files), "label": np.resize(["a", "b"], len(files)), "split": "train"}
    )
    settings = {"split_column": "split", "val_fraction": 0.0, "cache": "none", **settings}
    return prepared(ImageData(path=frame, **settings))
