"""The public image data sets, read and downloaded through torchvision."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from litlab.data.public import Unavailable, check_reachable
from litlab.errors import UserError, first_line
from litlab.util.files import socket_timeout


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

    @property
    def file_names(self) -> tuple[str, ...]:
        """The archives."""
        return self.archives

    @property
    def urls(self) -> list[str]:
        """One address for each server that has them."""
        reader = self._reader
        return [f"{m}{reader.resources[0][0]}" for m in reader.mirrors] if hasattr(reader, "mirrors") else [reader.url]

    @property
    def _reader(self) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.reader)

    def download(self, root: Path) -> None:
        """Make sure that the files are in a folder, and whole: as they are, from archives there, or downloaded.

        Raises:
            Unavailable: They are not there and there is no way to get them.
            UserError: They are there, but damaged, and there is no way to get them anew.
        """
        if self._is_whole(root):
            return
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            if self._is_whole(root):  # another process has downloaded it meanwhile
                return
            try:
                if not all((root / archive).is_file() for archive in self.archives):
                    check_reachable(self.urls)
                self._download_aside(root)
            except Unavailable as error:
                if not (root / self.folder).is_dir():
                    raise
                raise UserError(
                    f"{root / self.folder}: files are missing or damaged, and can't be downloaded again ({error}); "
                    "delete the folder, or replace it by an intact copy"
                ) from error

    def read(self, root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read what `download` has put into a folder.

        Returns:
            uint8 images (image, channel, height, width), int64 labels (image,), and their split, str (image,).
        """
        parts = {split: self._reader(root, train=split == "train") for split in ("train", "test")}
        images = np.concatenate([part.data for part in parts.values()])
        labels = np.concatenate([part.targets for part in parts.values()]).astype(np.int64)
        given = np.repeat(list(parts), [len(part) for part in parts.values()])
        return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2), labels, given

    def _is_whole(self, root: Path) -> bool:
        """Let torchvision read and check what is there."""
        try:
            return (root / self.folder).is_dir() and len(self.read(root)) > 0
        except (RuntimeError, OSError, ValueError, EOFError, AssertionError):
            return False

    def _download_aside(self, root: Path) -> None:
        """Download and unpack beside the target, then rename: torchvision takes half an MNIST file for a whole one."""
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as staging:
            for archive in filter(lambda name: (root / name).is_file(), self.archives):
                (Path(staging) / archive).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / archive, Path(staging) / archive)  # whole ones are not downloaded
            try:
                with socket_timeout(30):
                    self._reader(staging, download=True)
            except (RuntimeError, OSError, EOFError) as error:
                raise Unavailable(first_line(error)) from error
            if (root / self.folder).is_dir():  # damaged, or it holds no more than the archives, which are copied
                shutil.rmtree(root / self.folder)
            os.rename(Path(staging) / self.folder, root / self.folder)
