"""Predicting: the images to look at, and the CSV file that tells what they show."""

import glob
import os
import re
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.bad_rows import BadRows, Policy, settle_and_tell
from litlab.data.images.decode import SUFFIXES, ImageFormat, decode_blocks, peek
from litlab.data.images.folder import check_files, image_files
from litlab.errors import UserError


def find_images(source: str) -> list[Path]:
    """Find the images to predict: a folder (searched at any depth), a file, or a pattern such as ``photos/*.jpg``.

    Returns:
        Their paths, sorted.

    Raises:
        UserError: There are none, or some can't be read.
    """
    path = Path(os.path.expanduser(source))
    kinds = ", ".join(SUFFIXES)
    if os.path.isdir(path):
        images = [path / name for name in image_files(path)]
        problem = f"no images in it ({kinds})"
    elif os.path.lexists(path):
        images = [path]
        problem = ""
    else:
        images = _matching(path)
        problem = f"no such file or folder, and no pattern that fits any image ({kinds})"
    if not images:
        raise UserError(f"--input {source}: {problem}")
    check_files(images)
    if os.path.isfile(path) and path.suffix.lower() not in SUFFIXES:
        try:
            peek(path)
        except UserError:
            raise UserError(f"--input {source}: not an image; give one, a folder of images or a pattern") from None
    return sorted(images)


def _matching(pattern: Path) -> list[Path]:
    """Return the images that a pattern fits; ``**`` does not follow links, which may lead round in circles."""
    parts = [part if part == "**" else re.sub(r"\*+", "*", part) for part in pattern.parts]
    start = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if start == len(parts):
        return []
    folder = Path(*parts[:start])
    found = (file for file in folder.glob(os.path.join(*parts[start:])) if file.suffix.lower() in SUFFIXES)
    shown = (file for file in found if not any(part.startswith(".") for part in file.relative_to(folder).parts))
    return [file for file in shown if not file.is_dir()]


class ImageFiles(Dataset[dict[str, Tensor]]):
    """Image files that are decoded when their batch is asked for.

    Args:
        files: The files.
        form: The format that they get.
        source: What `predict_input` says.
    """

    def __init__(self, files: list[Path], form: ImageFormat, source: str) -> None:
        self.files = files
        self.form = form
        self.source = source

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Decode a batch, by the numbers of the files, int64 of shape (batch,).

        Returns:
            image: uint8 (batch, channel, height, width).

        Raises:
            UserError: A file is unreadable.
        """
        bad = BadRows(Path(self.source), unit="image")
        blocks = list(decode_blocks([self.files[i] for i in index.tolist()], self.form, bad))
        if bad:
            readable(self.files, self.form, self.source, "error")  # names all of them
        return {"image": torch.cat([torch.from_numpy(block) for block in blocks])}


def readable(files: list[Path], form: ImageFormat, source: str, bad_rows: Policy) -> list[Path]:
    """Find out which images can be read, by decoding all.

    Raises:
        UserError: There are some that may not be left out, or no others.
    """
    bad = BadRows(Path(source), bad_rows, "image")
    count = sum(len(block) for block in decode_blocks(files, form, bad))
    settle_and_tell(bad, count)
    return [file for file in files if str(file) not in bad]
