"""Shards: the samples of a data set in a few large files, in a folder or object storage. litdata writes and reads them.

Beside a folder for each split there is one called ``about``, whose only sample is a description in JSON: so whatever
storage litdata reads, it can be read there, too.
"""

import hashlib
import json
import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litlab.data.module import LoaderError
from litlab.errors import UserError, first_line
from litlab.util.progress import progress_bar

VERSION = 3
_INDEX = "index.json"


@dataclass(frozen=True)
class ShardSplit:
    """Samples that are read by their numbers, in any process.

    Args:
        where: Folder or address of the split.
        cache: Folder where its shards are kept, if they are elsewhere.
        names: Names of the values of a sample.
    """

    where: str
    cache: str
    names: list[str]

    def read(self, index: Tensor) -> list[dict[str, Any]]:
        """Return samples by their numbers, int64 of shape (samples,).

        They are read shard by shard: a change to another one takes milliseconds.

        Raises:
            LoaderError: A shard is missing, damaged or out of reach.
        """
        numbers = index.tolist()
        try:
            opened = _open(self.where, self.cache, os.getpid())
            found = {number: opened[number] for number in sorted(numbers)}
            return [dict(zip(self.names, map(_copy, found[number]), strict=True)) for number in numbers]
        except Exception as error:  # litdata and the clients of object storage have many
            raise LoaderError(f"data.path: {self.where} can't be read ({first_line(error)})") from error


class Shards:
    """The shards of a data set.

    Args:
        where: Their folder, or an address such as ``s3://bucket/folder``.
        cache_dir: Folder where shards of object storage are kept.
    """

    def __init__(self, where: str, cache_dir: Path | str) -> None:
        self.where = os.path.expanduser(where)
        self.cache_dir = cache_dir

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `write_about` got, with ``version`` and ``fingerprint``.

        Raises:
            UserError: There are no shards, or they can't be read.
        """
        with tempfile.TemporaryDirectory() as cache:
            (sample,) = ShardSplit(f"{self.where}/about", cache, ["json"]).read(torch.tensor([0]))
        return json.loads(sample["json"])

    def metadata(self, kind: str) -> dict[str, Any]:
        """Return what is known of the samples, as it was written.

        Raises:
            UserError: They are of another kind or version; or as of `about`.
        """
        found, needed = f"{self.about['kind']} of version {self.about['version']}", f"{kind} of version {VERSION}"
        if found != needed:
            raise UserError(f"data.path: {self.where} holds {found}, not {needed}; write it again")
        return self.about["metadata"]

    def sizes(self, split: str) -> list[int]:
        """Return the number of samples in each shard of a split."""
        return self.about["splits"][split]["samples"]

    def split(self, name: str) -> ShardSplit:
        """Return the samples of a split."""
        where = f"{self.where}/{name}"
        digest = hashlib.sha256(f"{where} {self.about['fingerprint']}".encode()).hexdigest()
        return ShardSplit(where, f"{self.cache_dir}/{digest}", self.about["splits"][name]["names"])


def write_split(folder: Path, samples: Iterable[Mapping[str, bytes | int]], count: int, size: int) -> dict[str, Any]:
    """Write the samples of a split.

    Args:
        folder: Its folder.
        samples: Bytes and numbers by their names, the same in all of them.
        count: How many there are.
        size: Bytes of a shard, which can be larger by one sample.

    Returns:
        For `write_about`: ``names`` of the values, and ``samples`` in each file.
    """
    cache = _import_litdata().Cache(str(folder), chunk_bytes=size)
    names: list[str] = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "An item was larger than the target chunk size")
        for number, sample in enumerate(progress_bar(samples, desc=f"writing {folder.name}", total=count)):
            names = list(sample)
            cache[number] = list(sample.values())  # dicts become Arrow tables where pyarrow is, which not all can read
        cache.done()
    cache.merge(1)
    return {"names": names, "samples": [shard["chunk_size"] for shard in _read_index(folder)]}


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the description of shards into their folder.

    Args:
        folder: The folder.
        about: ``kind`` and ``metadata`` of the samples; ``splits`` by their names as `write_split` returned them; and
            perhaps more.
    """
    known = {"version": VERSION, "fingerprint": secrets.token_hex(8), **about}
    write_split(folder / "about", [{"json": json.dumps(known, allow_nan=False).encode()}], 1, 2**20)


def _copy(value: Any) -> bytes | int:
    return bytes(value) if isinstance(value, memoryview) else value  # a view is of the file


def _import_litdata() -> Any:
    os.environ.setdefault("LITDATA_DISABLE_VERSION_CHECK", "1")  # it asks the network
    try:
        from litdata import streaming
    except ImportError as error:
        raise UserError(f"shards: {error}; pip install '.[stream]'") from error
    return streaming


@lru_cache(maxsize=4)
def _open(where: str, cache: str, pid: int) -> Any:
    """Open a split in this process: what a parent has opened has threads, which are not there after a fork."""
    litdata = _import_litdata()
    if os.path.isdir(where):
        place = litdata.resolver.Dir(where)
        shards = _read_index(Path(where))
    else:  # an address: litdata fetches no index where one is, and there is only one that was checked
        place = litdata.resolver.Dir(cache, where)
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            fetched = f"{aside}/{_INDEX}"
            litdata.downloader.get_downloader(where, aside, []).download_file(f"{where}/{_INDEX}", fetched)
            shards = _read_index(Path(aside))
            os.replace(fetched, f"{cache}/{_INDEX}")
    loader = litdata.item_loader.PyTreeLoader(batch_decode=0)  # by itself it decodes 256 samples around each one
    loader.set_mmap_allowed_chunks(set(range(len(shards))))  # by itself it reads the whole file for each sample
    return litdata.Cache(place, item_loader=loader, chunk_bytes=1)


def _read_index(folder: Path) -> list[dict[str, Any]]:
    """Return the shards of a folder, where `write_split` wrote its index: litdata would import what another names."""
    index = json.loads((folder / _INDEX).read_bytes())
    formats = index["config"]["data_format"]
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "builtins.list", "context": "null", "children_spec": [leaf] * len(formats)}
    ours = {"data_format": formats, "data_spec": json.dumps([1, spec]), "item_loader": "PyTreeLoader"}
    free = ("chunk_bytes", "types")  # which reading does not look at
    found = {name: value for name, value in index["config"].items() if value is not None and name not in free}
    are_plain = all(re.fullmatch(r"chunk-\d+-\d+\.bin", shard["filename"]) for shard in index["chunks"])
    if found != ours or not set(formats) <= {"bytes", "int"} or not are_plain:
        raise ValueError("it was not written by the command shards of this version; reading it could run code")
    return index["chunks"]
