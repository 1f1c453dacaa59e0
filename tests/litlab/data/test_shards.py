"""Shards of bytes: written, read here and from storage, damaged, and made to run code."""

import shutil
from collections import Counter
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from torch.utils.data import DataLoader

from litlab.commands.shards.shards import main
from litlab.data import shards as module
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards, write_about, write_split
from litlab.data.store import new_folder
from tests.litlab.data.conftest import refusal

CONTENTS = [bytes([number]) * (number % 7) for number in range(1, 51)]


def write(folder: Path, contents=CONTENTS) -> Path:
    with new_folder(folder) as staging:
        labels = torch.arange(len(contents))
        splits = {name: write_split(staging / name, "text", contents, 15, labels=labels) for name in ("train", "test")}
        write_about(staging, "texts", {"size": 7}, splits)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "shards")


@pytest.fixture
def storage(folder, monkeypatch):
    """An address with the same shards, and how often each of its files is fetched."""
    fetched, cat_file = Counter(), MemoryFileSystem.cat_file
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *args: (fetched.update(args[1:]), cat_file(*args))[1])
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/shards", recursive=True)
    yield "memory://shards", fetched
    memory.rm("/shards", recursive=True)
    module._map.cache_clear()


@pytest.mark.parametrize("is_near", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_written_is_read_here_and_from_storage(folder, storage, tmp_path, is_near, workers):
    address, fetched = storage
    shards = Shards(str(folder) if is_near else address, tmp_path / "cache", "texts")
    assert shards.about["metadata"] == {"size": 7}
    sizes = shards.sizes("train")
    assert sum(sizes) == 50
    assert len(sizes) > 5

    class Read(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return shards.read("train", index)

    sampler = ShardBatches(sizes, 4, 2, train=True)
    for batch, index in zip(DataLoader(Read(), None, sampler=sampler, num_workers=workers), sampler, strict=True):
        assert batch == [{"text": CONTENTS[number], "label": number} for number in index.tolist()]
    kept = [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.suffix != ".lock"]
    assert len(kept) == (0 if is_near else len(sizes))
    if not workers:
        assert set(fetched.values()) <= {1}, "each file once"


def test_shards_that_are_written_again_are_fetched_again(storage, tmp_path):
    address, _ = storage
    first = Shards(address, tmp_path / "cache", "texts")
    assert first.read("train", torch.tensor([3])) == [{"text": CONTENTS[3], "label": 3}]
    fsspec.filesystem("memory").put(f"{write(tmp_path / 'again', [b'new'] * 9)}/", "/shards", recursive=True)
    second = Shards(address, tmp_path / "cache", "texts")
    assert second.read("train", torch.tensor([3])) == [{"text": b"new", "label": 3}]
    assert second.about["fingerprint"] != first.about["fingerprint"]


def test_a_folder_appears_when_it_is_whole(folder, tmp_path):
    assert refusal(main, ["--output", str(folder)]) == f"--output: {folder} is there already; name a new folder"
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "other") as staging:
        write_split(staging / "train", "text", (bytes(1 // number) for number in (1, 0)), 9, labels=torch.arange(2))
    assert list(tmp_path.iterdir()) == [folder]


class Trap:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("marker"),)


def damage(folder: Path, how: str) -> None:
    about, shard = folder / "about.pt", folder / "train/1.bin"
    match how:
        case "missing":
            shard.unlink()
        case "cut off":
            shard.write_bytes(shard.read_bytes()[:10])
        case "no shards":
            shutil.rmtree(folder)
        case "code":
            torch.save({**torch.load(about), "metadata": Trap()}, about)
        case "later":
            torch.save({**torch.load(about), "kind": "texts of version 7"}, about)


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("missing", "/train can't be read (["),
        ("cut off", "/train can't be read (1.bin is cut off)"),
        ("no shards", " can't be read (["),
        ("code", " can't be read (Weights only load failed."),
        ("later", " holds texts of version 7, not texts of version 4; write it again"),
    ],
)
def test_damage_is_one_line_and_no_code_runs(folder, tmp_path, monkeypatch, how, line):
    monkeypatch.chdir(tmp_path)
    damage(folder, how)
    read = Shards(str(folder), "cache", "texts").read
    assert refusal(read, "train", torch.arange(50)).startswith(f"data.path: {folder}{line}")
    assert not Path("marker").exists()


def test_another_kind_and_storage_out_of_reach_are_one_line(folder, storage):
    with pytest.raises(module.UserError, match=r"holds texts of version 4, not images of version 4; write it again$"):
        Shards(str(folder), "cache", "images").about  # noqa: B018
    for address in ("memory://nobodys", "nothing://shards"):
        line = refusal(Shards(address, "cache", "texts").read, "train", torch.arange(1))
        assert line.startswith(f"data.path: {address} can't be read (")
