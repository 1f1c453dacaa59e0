"""Texts in shards: written, read here and from storage by any number of processes and workers, damaged."""

import shutil
from collections import Counter
from pathlib import Path

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from litlab.commands.shards.shards import main
from litlab.data import TextData
from litlab.data.shards import write_shards
from litlab.data.store import new_folder
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.text.conftest import make_rows, write_csv


def write(data, folder, size=360):
    with new_folder(folder) as staging:
        write_shards(prepared(data), staging, size)
    return folder


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes data of texts of 2 to 20 words: 160 to train on, 20 each for val and test."""
    folder = tmp_path_factory.mktemp("texts")
    file = write_csv(folder / "reviews.csv", make_rows(200))

    def make_it(**settings):
        return TextData(path=str(file), cache_dir=str(folder), **{"max_tokens": 8, "vocab_size": 40, **settings})

    return make_it


@pytest.fixture(scope="module")
def shards(make, tmp_path_factory):
    """About 20 shards of training texts."""
    return write(make(), tmp_path_factory.mktemp("shards") / "folder")


@pytest.fixture
def fetched(shards, monkeypatch):
    """The same shards are at memory://shards; how often each file there is fetched."""
    counts, cat_file = Counter(), MemoryFileSystem.cat_file
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *args: (counts.update(args[1:]), cat_file(*args))[1])
    memory = fsspec.filesystem("memory")
    memory.put(str(shards), "/shards", recursive=True)
    yield counts
    memory.rm("/shards", recursive=True)


def open_shards(folder, **settings):
    return TextData("shards", str(folder), **{"batch_size": 7, "shuffle_shards": 2, "max_tokens": 8, **settings})


def list_texts(batches):
    """All texts with their classes, sorted."""
    return sorted(
        (int(label), [number for number in row if number])
        for inputs, labels in batches
        for row, label in zip(inputs["ids"].tolist(), labels, strict=True)
    )


@pytest.mark.parametrize(("ranks", "workers"), [(1, 2), (3, 0)])
def test_every_text_once_whatever_the_ranks_and_workers(shards, make, ranks, workers):
    batches = []
    for rank in range(ranks):
        data = open_shards(shards, num_workers=workers, max_tokens=100)
        data.trainer = a_rank(rank, ranks)
        data.setup()
        batches += data.train_dataloader()
    assert len(data.shards.sizes("train")) > 15
    original = prepared(make(max_tokens=100))
    assert list_texts(batches) == list_texts([original.samples("train")[torch.arange(160)]])


@pytest.mark.parametrize(("is_near", "long_texts"), [(True, "truncate"), (False, "crop")])
def test_batches_are_those_of_texts_in_memory(shards, fetched, make, tmp_path, is_near, long_texts):
    where = shards if is_near else "memory://shards"
    memory = prepared(make(long_texts=long_texts))
    data = prepared(open_shards(where, long_texts=long_texts, cache_dir=str(tmp_path / "cache")))
    index = torch.tensor([7, 3, 19, 7])
    (here, labels), (there, others) = (each.samples("test")[index] for each in (data, memory))
    assert here["ids"].equal(there["ids"])
    assert labels.equal(others)
    assert not data.labels("train").equal(memory.labels("train")), "a file can be sorted by class"
    assert (tmp_path / "cache").exists() != is_near
    assert set(fetched.values()) <= {1}, "each file once"
    if not is_near:  # what is written again is fetched again
        again = write(make(max_tokens=4, vocab_size=9), tmp_path / "again")
        fsspec.filesystem("memory").put(f"{again}/", "/shards", recursive=True)
        data = prepared(open_shards(where, cache_dir=str(tmp_path / "cache")))
        assert data.samples("test")[index][0]["ids"].max() < 9


def test_what_is_known_of_the_texts_is_known_of_the_shards(shards, make, tmp_path, few_generated):
    data, original = prepared(open_shards(shards)), prepared(make())
    assert data.state_dict() == original.state_dict()
    assert data.baselines() == {}
    assert data.description.startswith(f"shards {shards}: 160 train / 20 val / 20 test texts of up to 8 tokens, 2")
    made = open_shards(write(TextData("generated", cache_dir=str(tmp_path)), tmp_path / "made"))
    assert prepared(made).generated
    assert data.fingerprint == open_shards(shards).fingerprint != made.fingerprint
    assert data.text("test", 3) == original.text("test", 3)


def test_what_does_not_fit_is_refused(shards, make):
    assert refusal(main, ["--output", str(shards)]) == f"--output: {shards} is there already; name a new folder"
    for setting in ({"fold": "0/5"}, {"balance": "even"}):
        assert refusal(open_shards, shards, **setting).startswith("data.fold, data.balance: shards come as they were")
    data = prepared(open_shards(shards))
    data.load_state_dict(prepared(make(vocab_size=20, max_tokens=6)).state_dict())
    assert data.max_tokens == 6
    assert refusal(data.samples, "test").endswith("has other tokens than the checkpoint; use those of its run")


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
def test_damage_is_one_line_and_no_code_runs(shards, tmp_path, monkeypatch, file, damage, line):
    """A shard index that named a class made a library import it."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(shards, tmp_path / "copy")
    path = folder / file
    if damage is None:
        path.unlink()
    elif isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        torch.save({**torch.load(path), **damage}, path)
    message = refusal(lambda: list(prepared(open_shards(folder)).train_dataloader()))
    assert message.startswith(f"data.path: {folder}{line}")
    assert not Path("marker").exists()
