"""Tiny data files, as fixtures: a folder of images, a table of texts, a table of numbers over
time.
"""

import csv
import math
import os
from datetime import datetime, timedelta
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
            for number in range(count):
                # Across the image
                wave = 15 * np.cos(np.arange(32) * (label + 1) * math.pi / 16)[:, None]
                pixels = (
                    rng.normal(20 + 23 * label + wave, 12, (32, 32, 3))
                    .clip(0, 255)
                    .astype(np.uint8)
                )
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """A CSV file of 160 texts in 4 classes, each told by one word among six to thirty others."""
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["label", "text"])
        for number in range(160):
            words = [f"word{i}" for i in rng.integers(0, 60, rng.integers(6, 30))]
            words.insert(int(rng.integers(len(words))), ["sun", "rain", "snow", "wind"][number % 4])
            writer.writerow([f"class_{number % 4}", " ".join(words)])
    return path


@pytest.fixture(scope="session")
def series(tmp_path_factory) -> Path:
    """A CSV file of 1,300 hours of two columns with a season of 24 and some noise."""
    path = tmp_path_factory.mktemp("series") / "series.csv"
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["date", "load", "heat"])
        for hour in range(1300):
            daily = math.sin(2 * math.pi * hour / 24)
            time = datetime(2024, 1, 1) + timedelta(hours=hour)
            load, heat = (
                100 + 10 * daily + rng.normal(),
                20 - 3 * daily + 0.01 * hour + 0.3 * rng.normal(),
            )
            writer.writerow([time, f"{load:.3f}", f"{heat:.3f}"])
    return path


def flip(path: Path, place: float) -> None:
    """Change one bit of a file, at a place from 0 to 1, and its date, as this process may have
    checked it already.
    """
    state, content = path.stat(), bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
