"""Shards: image files in a few large ones, and batches of them.

A shard is the bytes of its images, one behind the other. What else is known is in one file, which
is read with ``weights_only``: nothing in shards can run code, whoever has written them.
"""

import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.module import LoaderError
from litlab.data.sampler import EpochSampler
from litlab.data.store import progress_bar
from litlab.errors import UserError, first_line
from litlab.util.checksums import check_archive


class ShardBatches(EpochSampler):
    """Batches that read shard after shard, in an order that depends on nothing but (seed, epoch).

    - Training: the shards come in random order, one behind the other, and each process gets an
      equal share of that, so it reads its own shards and at most two that it shares with others. Of
      every `shuffle_shards` of them the samples are shuffled together.
    - Evaluation: the natural order.

    Every sample comes exactly once over all processes, whatever the numbers of shards, processes
    and workers. All processes have the same number of batches, of sizes that differ by one at most,
    and none is empty: no batch of an epoch is incomplete, but batches can be a little smaller than
    `batch_size`, so that they come out even. (Where the shares can't be cut otherwise, a batch has
    one sample more.) So there is nothing that `drop_last` could drop.

    Args:
        shards: Number of samples in each shard.
        batch_size: Samples per batch and process, at most.
        shuffle_shards: How many shards are shuffled together: more is more random, and reads from
            more files at once.
        **options: As of `EpochSampler`.
    """

    def __init__(
        self, shards: Sequence[int], batch_size: int, shuffle_shards: int, **options: Any
    ) -> None:
        super().__init__(sum(shards), batch_size, **options)
        self.shards = list(shards)
        self.shuffle_shards = shuffle_shards

    def batches(self) -> Iterator[Tensor]:
        """Yield all batches of the epoch, int64 tensors of shape (batch,)."""
        generator, turns = self.make_generator(), torch.arange(len(self.shards))
        order = torch.randperm(len(turns), generator=generator) if self.train else turns

        # The share of this process in the epoch's sequence of shards, and the turn of each sample's
        # shard in it.
        begin, end = (self.size * rank // self.world_size for rank in (self.rank, self.rank + 1))
        shards = torch.arange(self.size).split(self.shards)
        samples = torch.cat([shards[shard] for shard in order])[begin:end]
        turns = turns.repeat_interleave(torch.tensor(self.shards)[order])[begin:end]

        if self.train:
            block = (turns - turns[0]) // self.shuffle_shards
            keys = block + torch.rand(len(block), generator=generator, dtype=torch.float64)
            samples = samples[keys.argsort()]
        yield from samples.tensor_split(len(self))


VERSION = 8


class Shards:
    """The shards of a data set, whose images are read by their numbers, in any process.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `write_shards` has written: ``metadata``, ``splits`` and ``fingerprint``.

        Raises:
            UserError: There are no shards, they can't be read, or are of another version.
        """
        with _explain_unreadable(self.folder):
            check_archive(self.folder / "about.pt")
            about = torch.load(self.folder / "about.pt", weights_only=True)
        if about.get("version") != VERSION:
            raise UserError(
                f"data.path: {self.folder} holds no shards of version {VERSION}; write them again"
            )
        return about

    def sizes(self, split: str) -> list[int]:
        """Return the number of images in each shard of a split."""
        return self.about["splits"][split]["places"][:, 0].bincount().tolist()

    def read(self, split: str, index: Any) -> list[bytes]:
        """Return images by their numbers, int64 of shape (images,).

        Raises:
            LoaderError: A shard is missing or damaged.
        """
        folder, places = self.folder / split, self.about["splits"][split]["places"]
        images = []
        with _explain_unreadable(folder):
            for shard, begin, end, checksum in places[index].tolist():
                content = _map(folder / f"{shard}.bin")[begin:end].tobytes()
                if zlib.crc32(content) != checksum:
                    raise ValueError(f"{shard}.bin is damaged")
                images.append(content)
        return images


def write_shards(data: Any, folder: Path, size: int) -> None:
    """Write image files into shards, those to train on in random order, as folders are sorted by
    class.

    Args:
        data: An `ImageData`, set up.
        folder: The folder of the shards, which is there.
        size: Bytes of a shard, which can be larger by one image.
    """
    if data.listing is None:
        raise UserError("shards: they are for image files of your own; set data.path")
    known = {}
    for split, part in data.parts.items():
        order = torch.arange(len(part))
        if split == "train":
            order = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))
        files = data.listing["file"].to_numpy()[part.rows[order]]
        (folder / split).mkdir()

        # The shard of each image, where it begins and ends there, and its checksum.
        places, shard, end = [], 0, 0
        for file in progress_bar(files, desc=f"writing {split}"):
            if end >= size:
                shard, end = shard + 1, 0
            content = file.read_bytes()
            with (folder / split / f"{shard}.bin").open("ab") as stream:
                stream.write(content)
            begin, end = end, end + len(content)
            places.append([shard, begin, end, zlib.crc32(content)])
        known[split] = {"places": torch.tensor(places), "labels": part.labels[order]}

    about = {
        "version": VERSION,
        "fingerprint": secrets.token_hex(8),
        "metadata": data.state_dict(),
        "splits": known,
    }
    torch.save(about, folder / "about.pt")


@contextmanager
def _explain_unreadable(where: Path) -> Iterator[None]:
    """Make one line of whatever goes wrong with a file."""
    try:
        yield
    except Exception as error:  # torch.load has many
        line = first_line(error)
        raise LoaderError(
            f"data.path: {where} can't be read ({line}); copy or write the shards again"
        ) from error


@lru_cache(maxsize=64)
def _map(file: Path) -> np.ndarray:
    return np.memmap(file, np.uint8, "r")
