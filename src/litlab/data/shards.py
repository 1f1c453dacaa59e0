"""Shards: the samples of a data set in a few large files, in a folder or object storage. litdata writes and reads them.

Beside a folder for each split there is one called ``about``, whose only sample is a description in JSON: so whatever
storage litdata reads, it can be read there, too.
"""

import hashlib
import json
import os
import re
import shutil
import struct
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from litlab.data.cache import checksum
from litlab.data.loading import LoaderError
from litlab.data.paths import user_path
from litlab.errors import UserError, first_line
from litlab.util.progress import progress_bar

VERSION = 1
ABOUT = "about"
_FORMATS = {"bytes", "int"}  # what samples may hold: reading others could run code


class Shards:
    """The shards of a data set.

    Args:
        where: Their folder, or an address such as ``s3://bucket/folder``.
        cache_dir: Folder where shards of object storage are kept.
    """

    def __init__(self, where: str, cache_dir: Path) -> None:
        self.remote = _is_address(where)
        self.where = where if self.remote else str(user_path(where, "data.path"))
        self.cache_dir = cache_dir

    @cached_property
    def about(self) -> dict[str, Any]:
        """What was written with the shards: ``version``, ``kind``, ``splits`` and what the kind adds.

        Other folders of shards than those of the splits are in ``beside``.

        Raises:
            UserError: There are none, they can't be read, are damaged or of a later version.
        """
        if not self.remote and not os.path.isdir(os.path.join(self.where, ABOUT)):
            raise UserError(f"data.path: {self.where} holds no shards; write them with the command shards")
        with _readable(self.where, UserError):
            text = bytes(_opened(f"{self.where}/{ABOUT}", str(self.cache_dir), os.getpid())[0]["json"])
        try:
            about = json.loads(text)
            version, folders = about["version"], {**about["splits"], **about.get("beside", {})}
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"data.path: {self.where} is damaged ({first_line(error)}); write it again") from error
        if version > VERSION:
            raise UserError(f"data.path: {self.where} is of version {version}, for a later litlab; update it")
        for folder in folders:
            self._check(folder, folders[folder])
        return about

    def _check(self, folder: str, known: Mapping[str, Any]) -> None:
        """Look at the files of a folder of shards: all of them have to be there, and whole."""
        for number, size in enumerate(known["bytes"]) if not self.remote else ():
            file = Path(self.where, folder, known["files"][number])
            if not file.is_file():
                raise UserError(f"data.path: {file} is missing; copy the whole folder, or write it again")
            if file.stat().st_size != size:
                raise UserError(f"data.path: {file} is damaged ({file.stat().st_size:,} bytes instead of {size:,})")

    def split(self, name: str) -> "ShardSplit":
        """Return the samples of a split."""
        return ShardSplit(f"{self.where}/{name}", str(self.cache_dir))


class ShardSplit:
    """Samples that are read by their numbers, in any process.

    Args:
        where: Folder or address of the split.
        cache_dir: Folder where shards of object storage are kept.
    """

    def __init__(self, where: str, cache_dir: str) -> None:
        self.where = where
        self.cache_dir = cache_dir

    def read(self, index: Tensor) -> list[dict[str, Any]]:
        """Return samples by their numbers, int64 of shape (samples,).

        They are read shard by shard: a change to another one takes milliseconds.

        Raises:
            LoaderError: A shard is missing, damaged or out of reach.
        """
        with _readable(self.where, LoaderError):
            opened = _opened(self.where, self.cache_dir, os.getpid())
            numbers = index.tolist()
            found = {number: opened[number] for number in sorted(numbers)}
        return [found[number] for number in numbers]


@contextmanager
def new_shards(folder: Path) -> Iterator[Path]:
    """Write shards into a temporary folder, which gets its name when all of it is there.

    Args:
        folder: The folder, which must not be there, or be empty.

    Raises:
        UserError: It holds something, or can't be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--output: {folder} is there already; name a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"--output: {folder} can't be written: {error.strerror}") from error
    try:
        yield staging
        staging.chmod(0o755)  # temporary folders are private
        staging.rename(folder)
    except OSError as error:
        raise UserError(f"--output: {folder} can't be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_split(folder: Path, samples: Iterable[Mapping[str, bytes | int]], count: int, size: int) -> dict[str, Any]:
    """Write the samples of a split.

    Args:
        folder: Its folder.
        samples: Bytes and numbers by their names.
        count: How many there are.
        size: Bytes of a shard, which can be larger by one sample.

    Returns:
        For `Shards.about`: ``files``, their ``bytes``, ``checksums`` and ``samples``, all in order.
    """
    cache = _litdata().streaming.Cache(str(folder), chunk_bytes=size)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "An item was larger than the target chunk size")
        for number, sample in enumerate(progress_bar(samples, desc=f"writing {folder.name}", total=count)):
            cache[number] = sample
        cache.done()
        cache.merge(1)
    written = json.loads((folder / "index.json").read_bytes())["chunks"]
    names = [shard["filename"] for shard in written]
    return {
        "files": names,
        "bytes": [(folder / name).stat().st_size for name in names],
        "checksums": [checksum(folder / name) for name in names],
        "samples": [shard["chunk_size"] for shard in written],
    }


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the description of shards into their folder."""
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    text = json.dumps({"version": VERSION, "fingerprint": digest, **about}, ensure_ascii=False, allow_nan=False)
    write_split(folder / ABOUT, [{"json": text.encode()}], 1, 2**20)


def _is_address(where: str) -> bool:
    return re.match(r"[a-z0-9]+:", where) is not None


def _litdata() -> Any:
    os.environ.setdefault("LITDATA_DISABLE_VERSION_CHECK", "1")  # it asks the network
    try:
        return import_module("litdata")
    except ModuleNotFoundError as error:
        if error.name != "litdata":
            raise
        raise UserError("shards need litdata: pip install '.[stream]'") from error


@lru_cache(maxsize=4)
def _opened(where: str, cache_dir: str, pid: int) -> Any:
    """Open a split in this process: what a parent has opened has threads, which are not there after a fork."""
    cache = cache_dir if _is_address(where) else None
    # By itself litdata decodes 256 samples around each one that it reads, for iterators that take these next.
    opened = _litdata().StreamingDataset(where, cache_dir=cache, batch_decode=0)
    index = json.loads(Path(opened.input_dir.path, "index.json").read_bytes())  # that of object storage is here by now
    if not set(index["config"]["data_format"]) <= _FORMATS:
        raise UserError(f"data.path: {where} was not written by the command shards; reading it could run code")
    opened[0]  # before it has read anything, it can't be told to read whole shards
    opened.on_demand_bytes = False  # shards of object storage come whole, not sample by sample
    return opened


@contextmanager
def _readable(where: str, kind: type[UserError]) -> Iterator[None]:
    """Turn what litdata and the clients of object storage raise into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        known = isinstance(error, (OSError, ImportError, RuntimeError, ValueError, struct.error))
        if not known and type(error).__module__.partition(".")[0] not in ("botocore", "boto3", "litdata", "obstore"):
            raise
        raise kind(f"data.path: {where} can't be read ({first_line(error)})") from error
