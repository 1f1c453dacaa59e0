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

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass(frozen=True)
class PublicSet:
    """What is known of a public data set before it is read (importing torchvision takes seconds).

    Args:
        reader: Name of the torchvision class.
        folder: Where that class puts the files, relative to its root.
        archives: The files to download, relative to the root.
        class_names: Name of each class, in the order of the labels.
        shape: (channel, height, width).
    """

    reader: str
    folder: str
    archives: tuple[str, ...]
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]


def _mnist(reader: str, class_names: tuple[str, ...]) -> PublicSet:
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    archives = tuple(f"{reader}/raw/{part}-ubyte.gz" for part in parts)
    return PublicSet(reader, reader, archives, class_names, (1, 28, 28))


PUBLIC_SETS = {
    "cifar10": PublicSet(
        "CIFAR10", "cifar-10-batches-py", ("cifar-10-python.tar.gz",), tuple(_CIFAR10.split()), (3, 32, 32)
    ),
    "cifar100": PublicSet(
        "CIFAR100", "cifar-100-python", ("cifar-100-python.tar.gz",), tuple(_CIFAR100.split()), (3, 32, 32)
    ),
    "mnist": _mnist("MNIST", tuple("0123456789")),
    "fashion_mnist": _mnist("FashionMNIST", _FASHION),
}


def ensure_downloaded(name: str, root: Path, seconds: float = 4.0) -> None:
    """Make sure that the files of a public data set are there: as they are, from archives, or downloaded.

    Args:
        name: Key of `PUBLIC_SETS`.
        root: Folder for the files.
        seconds: How long to wait for an answer of the download server.

    Raises:
        Unavailable: They are not there and there is no way to get them.
        UserError: They are there, but damaged, and there is no way to get them anew.
    """
    public = PUBLIC_SETS[name]
    present = (root / public.folder).is_dir()
    if present and not _damaged(name, root):
        return
    archives = _intact_archives(public, root)
    try:
        if len(archives) < len(public.archives):
            reach(_servers(public), seconds)
        _download(name, root, archives)
    except Unavailable as error:
        if present:
            raise UserError(
                f"{root / public.folder}: files are missing or damaged, and can't be downloaded again ({error}); "
                f"delete the folder, or replace it by an intact copy"
            ) from error
        raise


def read(name: str, root: Path) -> dict[str, tuple[np.ndarray, Tensor]]:
    """Read a public data set that `ensure_downloaded` has put there.

    Args:
        name: Key of `PUBLIC_SETS`.
        root: Folder of the files.

    Returns:
        For "train" and "test" the uint8 images (image, channel, height, width) and int64 labels (image,).
    """
    reader = _reader(PUBLIC_SETS[name])
    splits = {}
    for split in ("train", "test"):
        dataset = reader(root, train=split == "train")
        images = np.asarray(dataset.data)
        images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        splits[split] = images, torch.as_tensor(dataset.targets, dtype=torch.int64)
    return splits


def _reader(public: PublicSet) -> Any:
    import torchvision.datasets

    return getattr(torchvision.datasets, public.reader)


def _damaged(name: str, root: Path) -> bool:
    """Let torchvision read and check what is there."""
    try:
        read(name, root)
    except (RuntimeError, OSError, ValueError, EOFError, AssertionError):
        return True
    return False


def _intact_archives(public: PublicSet, root: Path) -> list[str]:
    """The archives that are there and whole, relative to the root."""
    from torchvision.datasets.utils import check_integrity

    reader = _reader(public)
    sums = [md5 for _, md5 in reader.resources] if hasattr(reader, "resources") else [reader.tgz_md5]
    return [archive for archive, md5 in zip(public.archives, sums, strict=True) if check_integrity(root / archive, md5)]


def _servers(public: PublicSet) -> list[str]:
    """One address to try per server that torchvision downloads from."""
    reader = _reader(public)
    return [f"{m}{reader.resources[0][0]}" for m in reader.mirrors] if hasattr(reader, "mirrors") else [reader.url]


def _download(name: str, root: Path, archives: list[str]) -> None:
    """Download and unpack beside the target, then rename: torchvision takes half an MNIST file for a whole one."""
    public = PUBLIC_SETS[name]
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
            if _damaged(name, root):  # else another process was quicker
                raise
