"""Shards of bytes: written, read here and from storage, damaged, and made to run code."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from litlab.commands.shards.shards import main
from litlab.data import shards as module
from litlab.data.shards import Shards, write_shards
from litlab.data.store import new_folder
from tests.litlab.data.conftest import refusal

CONTENTS = [bytes([number]) * (number % 7) for number in range(1, 51)]


def write(folder: Path, contents=CONTENTS) -> Path:
    """Write shards of 15 bytes; the label of a sample is the first of its bytes."""
    data = SimpleNamespace(
        item="texts",
        sizes={"train": 50, "test": 50},
        labels=lambda split: torch.arange(50),
        state_dict=lambda: {"size": 7},
        contents=lambda split, order: ((contents[number] for number in order), {"name": split}),
    )
    with new_folder(folder) as staging:
        write_shards(data, staging, 15)
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
def test_what_is_written_is_read_here_and_from_storage(folder, storage, tmp_path, is_near):
    address, fetched = storage
    shards = Shards(str(folder) if is_near else address, tmp_path / "cache", "texts")
    about = shards.about["splits"]
    assert (shards.about["metadata"], about["test"]["name"]) == ({"size": 7}, "test")
    sizes = shards.sizes("train")
    assert sum(sizes) == 50
    assert len(sizes) > 5
    for split in ("train", "test"):
        labels = about[split]["labels"].tolist()
        assert (labels == list(range(50))) == (split == "test"), "a file can be sorted by class"
        index = np.array([7, 3, 49, 7])
        assert shards.read(split, index) == [CONTENTS[labels[number]] for number in index]
        assert shards.read(split, torch.arange(50)) == [CONTENTS[label] for label in labels]
    assert (tmp_path / "cache").exists() != is_near
    assert set(fetched.values()) <= {1}, "each file once"


def test_shards_that_are_written_again_are_fetched_again(storage, tmp_path):
    address, _ = storage
    first = Shards(address, tmp_path / "cache", "texts")
    assert first.read("test", [3]) == [CONTENTS[3]]
    fsspec.filesystem("memory").put(f"{write(tmp_path / 'again', [b'new'] * 50)}/", "/shards", recursive=True)
    assert Shards(address, tmp_path / "cache", "texts").read("test", [3]) == [b"new"]


def test_a_folder_appears_when_it_is_whole(folder, tmp_path):
    assert refusal(main, ["--output", str(folder)]) == f"--output: {folder} is there already; name a new folder"
    with pytest.raises(IndexError):
        write(tmp_path / "other", CONTENTS[:20])
    assert list(tmp_path.iterdir()) == [folder]


class Trap:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("marker"),)


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        ("train/1.bin", None, "/train can't be read (["),
        ("train/1.bin", b"a", "/train can't be read (1.bin is cut off)"),
        ("about.pt", {"metadata": Trap()}, " can't be read (Weights only load failed."),
        ("about.pt", {"kind": "images of version 5"}, " holds images of version 5, not texts"),
    ],
)
def test_damage_is_one_line_and_no_code_runs(folder, tmp_path, monkeypatch, file, damage, line):
    monkeypatch.chdir(tmp_path)
    path = folder / file
    if damage is None:
        path.unlink()
    elif isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        torch.save({**torch.load(path), **damage}, path)
    read = Shards(str(folder), "cache", "texts").read
    assert refusal(read, "train", torch.arange(50)).startswith(f"data.path: {folder}{line}")
    assert not Path("marker").exists()
