"""Shards: image files in a few large ones, and batches of them.

A shard is a tar file as WebDataset lays it out: ``000123.jpg``, and what is known of that image
beside it in ``000123.json`` or ``000123.cls``. Where each image is, and its checksum, is in an
index: beside the shards where `write_shards` has written them, else in the cache, once all of them
were read. Nothing in shards or index can run code, whoever has written them.
"""

import json
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.files import read_cells
from litlab.data.images.decode import is_image, open_image
from litlab.data.images.files import Listing, find_files, read_splits, read_status
from litlab.data.sampler import EpochSampler
from litlab.data.store import fill_cache, name_cache, progress_bar
from litlab.errors import LoaderError, UserError, first_line

INDEX = "index.parquet"


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
        generator, positions = self.make_generator(), torch.arange(len(self.shards))
        order = torch.randperm(len(positions), generator=generator) if self.train else positions

        # The share of this process in the epoch's sequence of shards, and the turn of each sample's
        # shard in it.
        begin, end = (self.size * rank // self.world_size for rank in (self.rank, self.rank + 1))
        # Numbers of the samples in each shard, which follow one another
        shards = torch.arange(self.size).split(self.shards)
        samples = torch.cat([shards[shard] for shard in order])[begin:end]
        positions = positions.repeat_interleave(torch.tensor(self.shards)[order])[begin:end]

        if self.train:
            # A sample is sorted by its block of shards, then at random. A block is a whole number,
            # so a random fraction never moves a sample into another one; float64, as float32 has
            # no digits left for it behind a large number
            block = (positions - positions[0]) // self.shuffle_shards
            keys = block + torch.rand(len(block), generator=generator, dtype=torch.float64)
            samples = samples[keys.argsort()]
        yield from samples.tensor_split(len(self))


class TarImages:
    """The images in tar files, which are read by their numbers, in any process.

    Args:
        tars: The files.
        entries: For each image the number of its file, where it begins, its size and its checksum,
            int64 of shape (image, 4).
    """

    def __init__(self, tars: Sequence[Path], entries: np.ndarray) -> None:
        self.tars, self.entries = tars, entries

    def __getitem__(self, positions: np.ndarray) -> list[bytes]:
        """Return images by their numbers, int64 of shape (images,).

        Raises:
            LoaderError: A shard is missing or damaged.
        """
        images = []
        for number, begin, size, checksum in self.entries[positions].tolist():
            tar = self.tars[number]
            with _explain_unreadable(tar):
                content = _map(tar, tar.stat().st_mtime_ns)[begin : begin + size].tobytes()
                if zlib.crc32(content) != checksum:
                    raise ValueError("it is damaged")
                images.append(content)
        return images


def list_shards(root: Path, cache_dir: Path, file_column: str, target: str) -> Listing:
    """List the images in tar files.

    Args:
        root: The folder, in which folders or names of files say train, val or test, or nothing; or
            a single tar file.
        cache_dir: The folder of caches, for an index where none is beside the files.
        file_column: What the column of their names will be called.
        target: What the column of ``.cls`` files will be called.

    Raises:
        UserError: There are none, or one can't be read.
    """
    import pandas as pd
    from pyarrow import parquet

    # The index is read where it is, or made: that reads all shards once
    tars = find_files(root, ".tar")
    if not tars:
        raise UserError(f"data.path: there are no shards (*.tar) in {root}; name a folder of some")
    status = [*map(read_status, tars.values())]
    beside = root / INDEX
    if not beside.is_file():
        cache = cache_dir / name_cache("images", "index", root.absolute(), [*tars], status)
        fill_cache(cache, partial(write_index, tars))
        beside = cache / INDEX
    # Its pages have checksums, too
    with _explain_unreadable(root):
        index = parquet.read_table(beside, page_checksum_verification=True).to_pandas()
    # Shards of another copy have other images at the same numbers
    if index["tar"].unique().tolist() != [*tars]:
        raise UserError(
            f"data.path: {beside} is of other shards than those in {root}; copy all again, or "
            "delete it"
        )

    # What is known of the images, as a table
    cells = pd.DataFrame([json.loads(text) for text in index["cells"]], dtype=object)
    if target not in cells and "cls" in cells:  # classes they are, even if they are numbers
        cells[target] = cells.pop("cls").astype("category")
    cells[file_column] = index["tar"] + ": " + index["key"]
    names = cells[file_column].tolist()
    numbers = index["tar"].factorize()[0]
    entries = index.assign(tar=numbers)[["tar", "begin", "size", "checksum"]].to_numpy("int64")
    images, predefined = TarImages([*tars.values()], entries), read_splits(root, [*tars], numbers)
    # Checksum and size of the file together tell copies apart well enough, without decoding
    digests = entries[:, 3] << 32 | entries[:, 2]
    return Listing(read_cells(cells), images, names, status, predefined, digests)


def write_index(tars: Mapping[str, Path], folder: Path) -> None:
    """Read tar files; write the index of their images into a folder: of each its name and tar file,
    where in it it is, its checksum, and as JSON what is known of it.

    Args:
        tars: The files, by their names in the index.
        folder: The folder.

    Raises:
        UserError: One can't be read, or holds no images.
    """
    import pandas as pd

    entries = []
    for tar, file in progress_bar(tars.items(), desc="reading shards", unit="shard"):
        # By the name of the sample, as its files may come in any order
        images, cells = {}, defaultdict[str, dict[str, Any]](dict)
        with _explain_unreadable(file), tarfile.open(file, "r:") as archive:
            for member in archive:
                # A sample is what has the same name up to the first dot
                match = re.fullmatch(r"((?:.*/)?[^/.]+)\.([^/]+)", member.name)
                if match is None or not member.isfile():
                    continue
                sample, suffix = match[1], match[2].lower()
                stream: Any = archive.extractfile(member)
                content = stream.read()
                if suffix == "json":
                    for column, cell in json.loads(content).items():
                        if not isinstance(cell, list | dict):
                            cells[sample][column] = cell
                elif suffix == "cls":
                    cells[sample]["cls"] = content.decode().strip()
                elif "." not in suffix and is_image(member.name):  # 000123.seg.png is a mask
                    stored = member.offset_data, member.size, zlib.crc32(content)
                    images[sample] = tar, member.name, *stored
        if not images:
            raise UserError(f"data.path: there are no images in {file}; delete it")
        entries += [(*image, json.dumps(cells[sample])) for sample, image in images.items()]
    index = pd.DataFrame(entries, columns=["tar", "key", "begin", "size", "checksum", "cells"])
    index.to_parquet(folder / INDEX, write_page_checksum=True)


def write_shards(data: Any, folder: Path, size: int) -> None:
    """Write image files into shards, those to train on in random order, as folders are sorted by
    class.

    Args:
        data: An `ImageData`, set up.
        folder: The folder of the shards, which is there.
        size: Bytes of a shard, which can be larger by one image.
    """
    if not data.is_own:
        raise UserError("shards: they are for image files of your own; set data.path")
    # All that the table says goes with each image
    listing = data.listing
    cells = listing.cells.drop(columns=data.file_column, errors="ignore")
    records = cells.to_json(orient="records", lines=True, date_format="iso", double_precision=15)
    lines = records.splitlines()
    for split, images in data.by_split.items():
        order = torch.arange(len(images))
        if split == "train":
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        (folder / split).mkdir()
        # A shard is full once it has so many bytes
        shards, archive = count(), None
        with ExitStack() as stack:
            positions = images.positions[order].tolist()
            for number, position in enumerate(progress_bar(positions, desc=split)):
                if archive is None or archive.offset >= size:
                    stack.close()
                    tar = folder / split / f"{next(shards):06}.tar"
                    archive = stack.enter_context(tarfile.open(tar, "w"))
                # The file as it is: decoding and encoding it again would lose quality
                (source,) = listing.images[np.array([position])]
                if isinstance(source, Path):
                    suffix, content = source.suffix, source.read_bytes()
                else:
                    suffix, content = f".{open_image(source).format}", source
                record = lines[position].encode()
                for end, written in ((suffix.lower(), content), (".json", record)):
                    member = tarfile.TarInfo(f"{number:09}{end}")
                    member.size = len(written)
                    archive.addfile(member, BytesIO(written))
    write_index(find_files(folder, ".tar"), folder)


@contextmanager
def _explain_unreadable(where: Path) -> Iterator[None]:
    """Make one line of whatever goes wrong with a file."""
    try:
        yield
    except Exception as error:  # of damaged files anything is thrown
        line = first_line(error)
        raise LoaderError(
            f"data.path: {where} can't be read ({line}); copy or write the shards again"
        ) from error


# Mapped rather than read: a batch takes a few images of each of several shards. The number of open
# files of a process is limited, often to 1,024
@lru_cache(maxsize=64)
def _map(file: Path, modified: int) -> np.ndarray:
    """Return a file's bytes, mapped into memory; one that was written again is mapped again."""
    return np.memmap(file, np.uint8, "r")
