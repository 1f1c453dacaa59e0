"""Images that are decoded when their batch is asked for, by the loader's workers: for data larger than the memory."""

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from litlab.data.images.decode import SMALL, ImageFormat, decode_file, reason
from litlab.data.images.memory import mean_std, moments
from litlab.data.loading import LoaderError
from litlab.util.progress import progress_bar

_MEASURED = 2000  # images that mean and standard deviation are taken from
_BLOCK = 100


class FileImages(Dataset[dict[str, Tensor]]):
    """Image files of one split; indexed by a tensor, it returns a batch.

    Args:
        files: The files.
        labels: int64 of shape (files,).
        form: The format that they get.
    """

    def __init__(self, files: Sequence[Path], labels: Tensor, form: ImageFormat) -> None:
        self.files = files
        self.labels = labels
        self.form = form

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.files)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Decode a batch, by the numbers of the files, int64 of shape (batch,).

        To a number can be added a multiple of `len(self)`: the same image then gets another augmentation.

        Returns:
            As `StoredImages` does.

        Raises:
            LoaderError: A file is damaged.
        """
        places = index % len(self)
        files = [self.files[place] for place in places.tolist()]
        return {"image": decoded(files, list(map(str, files)), self.form), "label": self.labels[places], "index": index}


def decoded(sources: Sequence[Path | io.BytesIO], names: Sequence[str], form: ImageFormat) -> Tensor:
    """Decode images: large ones in threads, but in a loader's worker in its own.

    Args:
        sources: Where they are.
        names: What to call them if they are damaged.
        form: The format that they get.

    Returns:
        uint8 of shape (image, channel, height, width).

    Raises:
        LoaderError: One is damaged, or unlike the others.
    """
    decode = partial(decode_file, form=form)
    alone = get_worker_info() is not None or _size(sources[0]) < SMALL
    arrays = list(map(decode, sources) if alone else _pool(os.getpid()).map(decode, sources))
    for name, array in zip(names, arrays, strict=True):
        if isinstance(array, Exception):
            raise LoaderError(f"{name}: {reason(array)}")
    return torch.from_numpy(np.stack(arrays))  # pyright: ignore[reportArgumentType, reportCallIssue]


def some_mean_std(files: Sequence[Path], form: ImageFormat) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel, as `mean_std`, over 2,000 files that are evenly spread."""
    chosen = [files[place] for place in np.linspace(0, len(files) - 1, min(_MEASURED, len(files))).astype(int)]
    sums = []
    with progress_bar(total=len(chosen), desc="measuring colours") as progress:
        for start in range(0, len(chosen), _BLOCK):
            some = chosen[start : start + _BLOCK]
            sums.append(moments(decoded(some, list(map(str, some)), form).numpy()))
            progress.update(len(some))
    return mean_std(np.concatenate(sums), form.height * form.width)


def _size(source: Path | io.BytesIO) -> int:
    if isinstance(source, io.BytesIO):
        return source.getbuffer().nbytes
    return source.stat().st_size if source.is_file() else 0


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    """Return the threads of a process: those of its parent are not there after a fork."""
    return ThreadPoolExecutor(os.cpu_count())
