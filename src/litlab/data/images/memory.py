"""Decoded images in memory, from which whole batches are taken by their indices."""

from typing import cast

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.utils.data import Dataset

from litlab.data.images.augment import reflect_pad


class StoredImages(Dataset[dict[str, Tensor]]):
    """Images of one split; indexed by a tensor, it returns a batch.

    Args:
        images: uint8 of shape (stored, channel, height, width), in memory, mapped from a file, or on a device.
        labels: int64 of shape (samples,).
        rows: Which of the stored images are the samples, int64 of shape (samples,); None: all of them, in order.
    """

    def __init__(self, images: Tensor, labels: Tensor, rows: Tensor | None = None) -> None:
        self.images = images
        self.labels = labels
        self.rows = rows

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.images.device

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """Take a batch, by the numbers of the samples, int64 of shape (batch,), on the CPU.

        To a number can be added a multiple of `len(self)`: the same sample then gets another augmentation.

        Returns:
            image: uint8 (batch, channel, height, width); label: int64 (batch,); index: the numbers, int64 (batch,).
        """
        index = index.to(self.images.device, non_blocking=True)
        samples = index % len(self)
        rows = samples if self.rows is None else self.rows.index_select(0, samples)
        return {
            "image": self.images.index_select(0, rows),
            "label": self.labels.index_select(0, samples),
            "index": index,
        }

    def in_memory(self, pad: int, processes: int) -> "StoredImages":
        """Copy the samples into memory of their own, in order and padded, where a quarter of what is free is enough.

        Args:
            pad: Pixels to add by reflection on each side.
            processes: How many processes of this machine do the same.

        Returns:
            The copy; or these images where they are too large: then batches come from the file as they are needed.
        """
        if self.rows is None and not pad:
            return self  # the pages of the file serve as memory, and are shared between processes
        _, channels, height, width = self.images.shape
        size = len(self) * channels * (height + 2 * pad) * (width + 2 * pad)
        if size * processes > psutil.virtual_memory().available / 4:
            return self
        copy = torch.empty((len(self), channels, height + 2 * pad, width + 2 * pad), dtype=torch.uint8)
        rows = torch.arange(len(self)) if self.rows is None else self.rows
        for part, some in zip(copy.split(4096), rows.split(4096), strict=True):
            part.copy_(reflect_pad(self.images.index_select(0, some), pad))
        return StoredImages(copy, self.labels)

    def on_device(self, device: torch.device, share: float) -> "StoredImages":
        """Copy the images to a device where they fit into a share of its free memory.

        Returns:
            The copy, or these images where they don't fit or the device is the CPU.
        """
        if device.type == "cpu" or self.rows is not None or self.images.nbytes > share * _free(device):
            return self
        return StoredImages(self.images.to(device), self.labels.to(device))


def _free(device: torch.device) -> int:
    """Bytes of memory that are free on a device; 0 for kinds of device that don't tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return 0


def moments(images: np.ndarray) -> np.ndarray:
    """Sum and sum of squares of the pixels per image and channel: from them follow mean and deviation of any split.

    Returns:
        int64 of shape (image, channel, 2), for images of shape (image, channel, height, width).
    """
    pixels = images.reshape(*images.shape[:2], -1).astype(np.int64)
    return np.stack((pixels.sum(-1), np.einsum("icp,icp->ic", pixels, pixels)), axis=-1)


def mean_std(sums: np.ndarray, pixels: int) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel, on a scale of 0 to 1, from `moments` and the pixels of an image.

    A channel that never changes gets the deviation of one grey level, not 0.
    """
    total, squares = sums.sum(0, dtype=np.float64).T / (len(sums) * pixels)
    std = np.sqrt(np.maximum(squares - total**2, 1.0))
    return cast(list[float], (total / 255).tolist()), cast(list[float], (std / 255).tolist())
