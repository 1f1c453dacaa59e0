"""The public image data sets, read and downloaded through torchvision."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from litlab.data.public import Unavailable
from litlab.errors import first_line
from litlab.util.files import socket_timeout


@dataclass(frozen=True)
class PublicImages:
    """A public data set of images that torchvision can download and read.

    What is stated here is known without importing torchvision, which takes seconds.

    Args:
        name: Short name, part of the cache's.
        reader: Name of the class in `torchvision.datasets`.
        file_names: The archives to download, relative to the folder of all public data.
        class_names: Name of each class, in the order of the labels.
        shape: (channel, height, width).
    """

    name: str
    reader: str
    file_names: tuple[str, ...]
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]

    def _open(self, root: Path, **options: Any) -> Any:
        import torchvision.datasets

        return getattr(torchvision.datasets, self.reader)(root, **options)

    def download(self, root: Path) -> None:
        """Make sure that the files are in a folder, and whole: as they are, from archives there, or
            downloaded.

        Raises:
            Unavailable: They are not there, or damaged, and there is no way to get them.
        """
        root.mkdir(parents=True, exist_ok=True)
        # One process of a machine downloads, the others wait and then find the files
        with FileLock(root / ".lock"):
            try:
                self.read(root)
                return
            except (RuntimeError, ValueError, AssertionError):  # not there, or damaged
                # Unpacked files of MNIST and its like: torchvision takes half of one for a whole
                # one, and would not unpack the archive again
                for file in root.glob(f"{self.reader}/raw/*-ubyte"):
                    file.unlink()
            try:
                with socket_timeout(10):
                    self._open(root, download=True)
            except (RuntimeError, OSError, EOFError) as error:
                raise Unavailable(first_line(error)) from error

    def read(self, root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read what `download` has put into a folder.

        Returns:
            uint8 images, (image, height, width, channel), or (image, height, width) with one
            channel; int64 labels, (image,); and their split, str (image,).
        """
        # CIFAR has arrays and lists, MNIST tensors: numpy takes all of them
        datasets = [self._open(root, train=is_train) for is_train in (True, False)]
        images = np.concatenate([dataset.data for dataset in datasets])
        labels = np.concatenate([dataset.targets for dataset in datasets]).astype(np.int64)
        sizes = [len(dataset) for dataset in datasets]
        return images, labels, np.repeat(["train", "test"], sizes)
