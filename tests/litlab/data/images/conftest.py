"""Small image folders."""

from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from PIL import Image

from litlab.data import ImageData


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
        return ImageData(**{"cache_dir": str(tmp_path / "cache"), "batch_size": 4, **options})

    return make
