"""Shards: image files in a few large ones, and batches of them.

A shard is a tar file as WebDataset lays it out: ``000123.jpg``, and what is told of that image
beside it in ``000123.json`` or ``000123.cls``. Where each image is, and its checksum, is in an
index: beside the shards where `write_shards` has written them, else in the cache, once all of them
were read. Nothing in shards or index can run code, whoever has written them.
"""

import json
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.files import Frame, read_cells
from litlab.data.images.decode import Source, fetch, is_image, open_image
from litlab.data.images.files import (
    Listing,
    complete_splits,
    compute_mark,
    name_split,
    read_status,
)
from litlab.data.module import LoaderError
from litlab.data.sampler import EpochSampler
from litlab.data.store import fill_cache, progress_bar
from litlab.errors import UserError, first_line

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


class TarImages:
    """The images in tar files, which are read by their numbers, in any process.

    Args:
        tars: The files.
        places: For each image the number of its file, where it begins, its size and its checksum,
            int64 of shape (image, 4).
    """

    def __init__(self, tars: Sequence[Path], places: np.ndarray) -> None:
        self.tars, self.places = tars, places

    def __call__(self, rows: np.ndarray) -> list[bytes]:
        """Return images by their numbers, int64 of shape (images,).

        Raises:
            LoaderError: A shard is missing or damaged.
        """
        images = []
        for number, begin, size, checksum in self.places[rows].tolist():
            tar = self.tars[number]
            with _explain_unreadable(tar):
                content = _map(tar)[begin : begin + size].tobytes()
                if zlib.crc32(content) != checksum:
                    raise ValueError("it is damaged")
                images.append(content)
        return images


def list_shards(root: Path, cache_dir: Path, file_column: str, target: str) -> Listing:
    """List the images in the tar files of a folder.

    Args:
        root: The folder; folders in it, or names of files, say train, val or test, or nothing.
        cache_dir: The folder of caches, for an index where none is beside the files.
        file_column: What the column of their names will be called.
        target: What the column of ``.cls`` files will be called.

    Raises:
        UserError: There are none, or one can't be read.
    """
    import pandas as pd
    from pyarrow import parquet

    # The index is read where it is, or made
    tars = sorted(root.rglob("*.tar"))
    if not tars:
        raise UserError(f"data.path: there are no shards (*.tar) in {root}; name a folder of some")
    names, status = [tar.relative_to(root).as_posix() for tar in tars], [*map(read_status, tars)]
    beside = root / INDEX
    if not beside.is_file():
        cache = cache_dir / compute_mark("index", root.absolute(), names, status)
        fill_cache(cache, lambda folder: _write_index(folder / INDEX, scan_tars(root, tars)))
        beside = cache / INDEX
    with _explain_unreadable(root):
        index = parquet.read_table(beside, page_checksum_verification=True).to_pandas()

    if index["tar"].unique().tolist() != names:
        raise UserError(
            f"data.path: {beside} is of other shards than those in {root}; copy all again, or "
            "delete it"
        )
    # What is told of the images, as a table
    cells = pd.DataFrame([json.loads(text) for text in index["cells"]], dtype=object)
    has_classes = target not in cells and "cls" in cells
    if has_classes:
        cells = cells.rename(columns={"cls": target})
    cells[file_column] = index["tar"] + ": " + index["key"]
    index["shard"] = shards = index["tar"].factorize()[0]
    splits = {name: name_split(name) for name in names}
    return Listing(
        read_cells(cells),
        TarImages(tars, index[["shard", "begin", "size", "checksum"]].to_numpy("int64")),
        cells[file_column].tolist(),
        status,
        complete_splits(index["tar"].map(splits).tolist(), root),
        shards,
        (index["checksum"].to_numpy("uint64") << np.uint64(32)) + index["size"].to_numpy("uint64"),
        has_classes,
    )


def scan_tars(root: Path, tars: Sequence[Path]) -> Frame:
    """Read tar files; return the index of their images.

    Args:
        root: What their names are relative to.
        tars: The files.

    Returns:
        A frame of ``key``, ``tar``, ``begin``, ``size``, ``checksum`` and ``cells``, which is JSON.

    Raises:
        UserError: One can't be read, or holds no images.
    """
    import pandas as pd

    rows = []
    for tar in progress_bar(tars, desc="reading shards", unit="shard"):
        samples: dict[str, dict[str, Any]] = {}
        with _explain_unreadable(tar), tarfile.open(tar, "r:") as archive:
            for member in archive:
                # A sample is what has the same name up to the first dot
                folder, _, name = member.name.rpartition("/")
                stem, _, suffix = name.partition(".")
                if not member.isfile() or not stem:
                    continue
                sample = samples.setdefault(f"{folder}/{stem}", {"cells": {}})
                stream = archive.extractfile(member)
                content = stream.read() if stream else b""
                if suffix.lower() == "json":
                    for column, cell in json.loads(content).items():
                        if not isinstance(cell, list | dict):
                            sample["cells"][column] = cell
                elif suffix.lower() == "cls":
                    sample["cells"]["cls"] = content.decode().strip()
                elif "." not in suffix and is_image(name):
                    place = {"begin": member.offset_data, "size": member.size}
                    sample |= {**place, "checksum": zlib.crc32(content), "key": name}
        found = [sample for sample in samples.values() if "key" in sample]
        if not found:
            raise UserError(f"data.path: there are no images in {tar}; delete it")
        name = tar.relative_to(root).as_posix()
        rows += [{**sample, "tar": name, "cells": json.dumps(sample["cells"])} for sample in found]
    return pd.DataFrame(rows)


def _write_index(path: Path, index: Frame) -> None:
    index.to_parquet(path, write_page_checksum=True)


def write_shards(data: Any, folder: Path, size: int) -> None:
    """Write image files into shards, those to train on in random order, as folders are sorted by
    class.

    Args:
        data: An `ImageData`, set up.
        folder: The folder of the shards, which is there.
        size: Bytes of a shard, which can be larger by one image.
    """
    listing = data.listing
    if listing is None:
        raise UserError("shards: they are for image files of your own; set data.path")
    # All that the table says goes with each image
    told = listing.cells.drop(columns=data.file_column, errors="ignore")
    cells = told.to_json(orient="records", lines=True, date_format="iso", double_precision=15)
    lines = cells.splitlines()
    for split, part in data.parts.items():
        order = torch.arange(len(part))
        if split == "train":
            order = torch.randperm(len(part), generator=torch.Generator().manual_seed(0))
        (folder / split).mkdir()
        shards, archive = count(), None
        with ExitStack() as stack:
            for number, row in enumerate(progress_bar(part.rows[order].tolist(), desc=split)):
                if archive is None or archive.offset >= size:
                    stack.close()
                    tar = folder / split / f"{next(shards):06}.tar"
                    archive = stack.enter_context(tarfile.open(tar, "w"))
                (source,) = fetch(listing.images, np.array([row]))
                content = source.read_bytes() if isinstance(source, Path) else source
                _add(archive, f"{number:09}{_find_suffix(source)}", content)
                _add(archive, f"{number:09}.json", lines[row].encode())
    _write_index(folder / INDEX, scan_tars(folder, sorted(folder.rglob("*.tar"))))


def _find_suffix(source: Source) -> str:
    if isinstance(source, Path):
        return source.suffix.lower()
    with open_image(source) as image:
        return "." + str(image.format).lower()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, BytesIO(content))


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


@lru_cache(maxsize=64)
def _map(file: Path) -> np.ndarray:
    return np.memmap(file, np.uint8, "r")
