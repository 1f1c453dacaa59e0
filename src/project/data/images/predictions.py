"""Predicting: the images to look at, and the CSV file that tells what they show."""

import glob
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from project.data.images.decode import SUFFIXES, ImageFormat, decode_blocks
from project.data.table import write_table
from project.errors import UserError


def find_images(source: str) -> list[Path]:
    """Find the images to predict.

    Args:
        source: A folder (searched at any depth), an image file, or a pattern such as ``photos/*.jpg``.

    Returns:
        Their paths, sorted.

    Raises:
        UserError: There are none.
    """
    path = Path(source)
    if path.is_file():
        return [path]
    found = path.rglob("*") if path.is_dir() else (Path(name) for name in glob.glob(source, recursive=True))
    shown = (file for file in found if not file.name.startswith("."))  # macOS leaves ._name.jpg beside name.jpg
    images = sorted(file for file in shown if file.suffix.lower() in SUFFIXES and file.is_file())
    if not images:
        problem = "no images in it" if path.is_dir() else "no such file or folder, and no pattern that fits any image"
        raise UserError(f"--input {source}: {problem} ({', '.join(SUFFIXES)})")
    return images


class ImageFiles(Dataset[dict[str, Tensor]]):
    """Image files that are decoded when their batch is asked for.

    Args:
        files: The files.
        form: The format that they get.
    """

    def __init__(self, files: list[Path], form: ImageFormat) -> None:
        self.files = files
        self.form = form

    def __len__(self) -> int:
        """Number of files."""
        return len(self.files)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Decode a batch.

        Args:
            index: Numbers of the files, int64 of shape (batch,).

        Returns:
            image: uint8 (batch, channel, height, width).

        Raises:
            UserError: A file is unreadable.
        """
        blocks = decode_blocks([self.files[i] for i in index.tolist()], self.form)
        return {"image": torch.cat([torch.from_numpy(block) for block in blocks])}


def write_csv(path: Path, files: list[Path], class_names: list[str], probabilities: Tensor) -> None:
    """Write predictions: file, prediction, its probability, and the probability of each class.

    Args:
        path: The CSV file; it is replaced in one step.
        files: The images.
        class_names: The name of each class.
        probabilities: (file, class).

    Raises:
        UserError: The file can't be written.
        ValueError: There are more or fewer probabilities than files or classes.
    """
    if probabilities.shape != (len(files), len(class_names)):
        raise ValueError(
            f"probabilities of shape {tuple(probabilities.shape)} for {len(files)} files and {len(class_names)} classes"
        )
    best, number = probabilities.float().max(dim=1)
    rows = zip(files, best.tolist(), number.tolist(), probabilities.tolist(), strict=True)
    header = ["file", "prediction", "probability", *class_names]
    write_table(path, header, ([f, class_names[n], f"{p:.6f}", *(f"{v:.6f}" for v in row)] for f, p, n, row in rows))
