"""The public image data sets, read and downloaded through torchvision."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.download import Unavailable, reach, socket_timeout
from litlab.errors import UserError


@dataclass(frozen=True)
class PublicImages:
    """A public data set of images that torchvision can download and read.

    What is stated here is known without importing torchvision, which takes seconds.

    Args:
        name: Short name, part of the cache's.
        reader: Name of the class in `torchvision.datasets`.
        folder: Where that class puts the files, relative to its root.
        archives: The files to download, relative to the root.
        class_names: Name of each class, in the order of the labels.
        shape: (channel, height, width).
    """

    name: str
    reader: str
    folder: str
    archives: tuple[str, ...]
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]


def ensure_downloaded(public: PublicImages, root: Path, seconds: float = 4.0) -> None:
    """Make sure that the files of a public data set are there: as they are, from archives, or downloaded.

    Args:
        public: The data set.
        root: Folder for the files.
        seconds: How long to wait for an answer of the download server.

    Raises:
        Unavailable: They are not there and there is no way to get them.
        UserError: They are there, but damaged, and there is no way to get them anew.
    """
    present = (root / public.folder).is_dir()
    if present and not _damaged(public, root):
        return
    archives = _intact_archives(public, root)
    try:
        if len(archives) < len(public.archives):
            reach(_servers(public), seconds)
        _download(public, root, archives)
    except Unavailable as error:
        if present:
            raise UserError(
                f"{root / public.folder}: files are missing or damaged, and can't be downloaded again ({error}); "
                f"delete the folder, or replace it by an intact copy"
            ) from error
        raise


def read(public: PublicImages, root: Path) -> dict[str, tuple[np.ndarray, Tensor]]:
    """Read a public data set that `ensure_downloaded` has put there.

    Args:
        public: The data set.
        root: Folder of the files.

    Returns:
        For "train" and "test" the uint8 images (image, channel, height, width) and int64 labels (image,).
    """
    reader = _reader(public)
    splits = {}
    for split in ("train", "test"):
        dataset = reader(root, train=split == "train")
        images = np.asarray(dataset.data)
        images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        splits[split] = images, torch.as_tensor(dataset.targets, dtype=torch.int64)
    return splits


def _reader(public: PublicImages) -> Any:
    import torchvision.datasets

    return getattr(torchvision.datasets, public.reader)


def _damaged(public: PublicImages, root: Path) -> bool:
    """Let torchvision read and check what is there."""
    try:
        read(public, root)
    except (RuntimeError, OSError, ValueError, EOFError, AssertionError):
        return True
    return False


def _intact_archives(public: PublicImages, root: Path) -> list[str]:
    """Return the archives that are there and whole, relative to the root."""
    from torchvision.datasets.utils import check_integrity

    reader = _reader(public)
    sums = [md5 for _, md5 in reader.resources] if hasattr(reader, "resources") else [reader.tgz_md5]
    return [archive for archive, md5 in zip(public.archives, sums, strict=True) if check_integrity(root / archive, md5)]


def _servers(public: PublicImages) -> list[str]:
    """One address to try per server that torchvision downloads from."""
    reader = _reader(public)
    return [f"{m}{reader.resources[0][0]}" for m in reader.mirrors] if hasattr(reader, "mirrors") else [reader.url]


def _download(public: PublicImages, root: Path, archives: list[str]) -> None:
    """Download and unpack beside the target, then rename: torchvision takes half an MNIST file for a whole one."""
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as staging:
        for archive in archives:  # torchvision unpacks those without asking the network
            (Path(staging) / archive).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / archive, Path(staging) / archive)
        try:
            with socket_timeout(30):
                for train in (True, False):
                    _reader(public)(staging, train=train, download=True)
        except (RuntimeError, OSError, EOFError) as error:
            raise Unavailable(" ".join(str(error).split())) from error
        if (root / public.folder).is_dir():  # damaged, or it holds no more than the archives, which are copied
            shutil.rmtree(root / public.folder)
        try:
            os.rename(Path(staging) / public.folder, root / public.folder)
        except OSError:
            if _damaged(public, root):  # else another process was quicker
                raise
