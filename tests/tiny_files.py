"""Tiny data files, as fixtures: a folder of images, a table of texts, a table of numbers over
time.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> Path:
    """A folder of PNG images: 10 classes, 16 / 4 / 5 each for train, val and test, told apart by
    light and waves.
    """
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 4), ("test", 5)):
        for label in range(10):
            folder = root / split / f"class_{label}"
            folder.mkdir(parents=True)
            # Across the image
            wave = 15 * np.cos(np.arange(32) * (label + 1) * np.pi / 16)[:, None]
            for number in range(count):
                pixels = rng.normal(20 + 23 * label + wave, 12, (32, 32, 3)).clip(0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """A CSV file of 160 texts in 4 classes, each told by one word among six to thirty others."""
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rng = np.random.default_rng(0)
    lines = ["label,text\n"]
    for number in range(160):
        words = [f"word{i}" for i in rng.integers(0, 60, rng.integers(6, 30))]
        words.insert(int(rng.integers(len(words))), ["sun", "rain", "snow", "wind"][number % 4])
        lines.append(f"class_{number % 4},{' '.join(words)}\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="session")
def series(tmp_path_factory) -> Path:
    """A CSV file of 1,300 hours of two columns with a season of 24 and some noise."""
    import pandas as pd

    path = tmp_path_factory.mktemp("series") / "series.csv"
    hour, noise = np.arange(1300), np.random.default_rng(0).normal(size=(1300, 2))
    daily = np.sin(2 * np.pi * hour / 24)
    columns = {
        "date": pd.date_range("2024-01-01", periods=1300, freq="h"),
        "load": 100 + 10 * daily + noise[:, 0],
        "heat": 20 - 3 * daily + 0.01 * hour + 0.3 * noise[:, 1],
    }
    pd.DataFrame(columns).to_csv(path, index=False, float_format="%.3f")
    return path


def flip(path: Path, place: float) -> None:
    """Change one bit of a file, at a place from 0 to 1, and its date, as this process may have
    checked it already.
    """
    state, content = path.stat(), bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
