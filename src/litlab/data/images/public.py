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

from litlab.data.download import Unavailable, reach
from litlab.errors import UserError
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
    def file_names(self) -> list[str]:
        """The archives."""
        return list(self.archives)

    def ensure_downloaded(self, root: Path, seconds: float = 4.0) -> None:
        """Make sure that the files are in a folder: as they are, from archives, or downloaded; see `obtain_file`.

        Raises:
            Unavailable: They are not there and there is no way to get them.
            UserError: They are there, but damaged, and there is no way to get them anew.
        """
        present = (root / self.folder).is_dir()
        if present and not self._damaged(root):
            return
        archives = self._intact_archives(root)
        try:
            if len(archives) < len(self.archives):
                reach(self.servers(), seconds)
            self._download(root, archives)
        except Unavailable as error:
            if present:
                raise UserError(
                    f"{root / self.folder}: files are missing or damaged, and can't be downloaded again ({error}); "
                    f"delete the folder, or replace it by an intact copy"
                ) from error
            raise

    def read(self, root: Path) -> dict[str, tuple[np.ndarray, Tensor]]:
        """Read what `ensure_downloaded` has put into a folder.

        Returns:
            For "train" and "test" the uint8 images (image, channel, height, width) and int64 labels (image,).
        """
        splits = {}
        for split in ("train", "test"):
            dataset = self._torchvision(root, train=split == "train")
            images = np.asarray(dataset.data)
            images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
            splits[split] = images, torch.as_tensor(dataset.targets, dtype=torch.int64)
        return splits

    @property
    def _torchvision(self) -> Any:
        """The class in torchvision."""
        import torchvision.datasets

        return getattr(torchvision.datasets, self.reader)

    def _damaged(self, root: Path) -> bool:
        """Let torchvision read and check what is there."""
        try:
            self.read(root)
        except (RuntimeError, OSError, ValueError, EOFError, AssertionError):
            return True
        return False

    def _intact_archives(self, root: Path) -> list[str]:
        """Return the archives that are there and whole, relative to the root."""
        from torchvision.datasets.utils import check_integrity

        reader = self._torchvision
        sums = [md5 for _, md5 in reader.resources] if hasattr(reader, "resources") else [reader.tgz_md5]
        return [name for name, md5 in zip(self.archives, sums, strict=True) if check_integrity(root / name, md5)]

    def servers(self) -> list[str]:
        """One address to try per server that torchvision downloads from."""
        reader = self._torchvision
        return [f"{m}{reader.resources[0][0]}" for m in reader.mirrors] if hasattr(reader, "mirrors") else [reader.url]

    def _download(self, root: Path, archives: list[str]) -> None:
        """Download and unpack beside the target, then rename: torchvision takes half an MNIST file for a whole one."""
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as staging:
            for archive in archives:  # torchvision unpacks those without asking the network
                (Path(staging) / archive).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / archive, Path(staging) / archive)
            try:
                with socket_timeout(30):
                    for train in (True, False):
                        self._torchvision(staging, train=train, download=True)
            except (RuntimeError, OSError, EOFError) as error:
                raise Unavailable(" ".join(str(error).split())) from error
            if (root / self.folder).is_dir():  # damaged, or it holds no more than the archives, which are copied
                shutil.rmtree(root / self.folder)
            try:
                os.rename(Path(staging) / self.folder, root / self.folder)
            except OSError:
                if self._damaged(root):  # else another process was quicker
                    raise
