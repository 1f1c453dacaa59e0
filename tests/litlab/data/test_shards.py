"""Shards of plain bytes and numbers: written, read here and from elsewhere, damaged, and made to run code."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from litlab.commands.shards.shards import main
from litlab.data.module import LoaderError
from litlab.data.shard_batches import ShardBatches
from litlab.data.shards import Shards, write_about, write_split
from litlab.data.store import new_folder
from litlab.errors import UserError
from tests.litlab.data.conftest import refusal

pytest.importorskip("litdata")
# litdata leaves files open that it has downloaded.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def a_sample(number: int) -> dict[str, bytes | int]:
    return {"text": bytes([number]) * (number % 7), "label": number}


def write(folder: Path) -> Path:
    with new_folder(folder) as staging:
        splits = {name: write_split(staging / name, map(a_sample, range(50)), 50, 150) for name in ("train", "test")}
        write_about(staging, {"kind": "texts", "metadata": {"size": 7}, "splits": splits})
    return folder


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "shards")


class Read(Dataset):
    """Batches of labels."""

    def __init__(self, split):
        self.split = split

    def __len__(self):
        return 50

    def __getitem__(self, index):
        samples = self.split.read(index)
        assert all(sample == a_sample(sample["label"]) for sample in samples)
        return torch.tensor([sample["label"] for sample in samples])


@pytest.mark.parametrize("place", ["", "local:"])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_written_is_read_here_and_from_elsewhere(folder, tmp_path, place, workers):
    shards = Shards(f"{place}{folder}", tmp_path / "cache")
    assert shards.metadata("texts") == {"size": 7}
    sizes = shards.sizes("train")
    assert sum(sizes) == 50
    assert len(sizes) > 5
    sampler = ShardBatches(sizes, 4, 2, train=True)
    batches = list(DataLoader(Read(shards.split("train")), batch_size=None, sampler=sampler, num_workers=workers))
    assert all(map(torch.equal, batches, sampler))
    kept = list((tmp_path / "cache").rglob("chunk-*.bin"))
    assert len(kept) >= len(sizes) if place else not kept
    # With pyarrow litdata may write tables instead, which a machine without it can't read.
    assert not any(b"ARROW1" in file.read_bytes() for file in folder.rglob("*.bin"))


def test_shards_that_are_written_again_are_fetched_again(folder, tmp_path):
    where = f"local:{folder}"
    first = Shards(where, tmp_path / "cache")
    assert first.split("train").read(torch.tensor([3])) == [a_sample(3)]
    shutil.rmtree(folder)
    with new_folder(folder) as staging:
        splits = {"train": write_split(staging / "train", [{"text": b"new", "label": 1}] * 9, 9, 1000)}
        write_about(staging, {"kind": "texts", "metadata": {}, "splits": splits})
    second = Shards(where, tmp_path / "cache")
    assert second.split("train").read(torch.tensor([3])) == [{"text": b"new", "label": 1}]
    assert second.about["fingerprint"] != first.about["fingerprint"]


def test_a_folder_appears_when_it_is_whole(folder, tmp_path):
    with pytest.raises(UserError, match=r"^--output: .*shards is there already; name a new folder"):
        main(["--output", str(folder)])
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "other") as staging:
        write_split(staging / "train", (a_sample(1 // number) for number in (1, 1, 0)), 3, 150)
    assert list(tmp_path.iterdir()) == [folder]


def damage(folder: Path, how: str) -> None:
    shard = folder / "train/chunk-0-1.bin"
    match how:
        case "missing":
            shard.unlink()
        case "cut off":
            shard.write_bytes(shard.read_bytes()[:10])
        case "changed":
            shard.write_bytes(bytes(shard.stat().st_size))
        case "no shards":
            shutil.rmtree(folder / "about")
        case "later":
            about = folder / "about/chunk-0-0.bin"
            about.write_bytes(about.read_bytes().replace(b'"version": 3', b'"version": 7'))


@pytest.mark.parametrize(
    ("place", "how", "line"),
    [
        ("", "missing", "/train can't be read ("),
        ("", "cut off", "/train can't be read ("),
        ("", "changed", "/train can't be read ("),
        ("", "no shards", "/about can't be read ("),
        ("", "later", " holds texts of version 7, not texts of version 3; write it again"),
        ("local:", "missing", "/train can't be read ("),
        ("local:", "no shards", "/about can't be read ("),
    ],
)
def test_damage_is_one_line(folder, tmp_path, place, how, line):
    damage(folder, how)
    where = f"{place}{folder}"

    def read():
        shards = Shards(where, tmp_path / "cache")
        shards.metadata("texts")
        shards.split("train").read(torch.arange(50))

    assert refusal(read).startswith(f"data.path: {where}{line}")


def test_another_kind_and_storage_out_of_reach_are_one_line(folder, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"holds texts of version 3, not images of version 3; write it again$"):
        Shards(str(folder), tmp_path / "cache").metadata("images")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(LoaderError, match=r"^data.path: s3://nobodys/shards/about can't be read \("):
        Shards("s3://nobodys/shards", tmp_path / "cache").about  # noqa: B018


LEAF = {"type": None, "context": None, "children_spec": []}
IMPORTING = {
    "type": "collections.defaultdict",
    "context": {"default_factory_module": "evil", "default_factory_name": "f", "dict_context": ["text"]},
    "children_spec": [LEAF],
}


@pytest.mark.parametrize("place", ["", "local:"])
@pytest.mark.parametrize("split", ["about", "train"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data_spec", json.dumps([1, IMPORTING])),
        ("data_format", ["pickle", "int"]),
        ("compression", "zstd"),
        ("encryption", {"algorithm": "fernet"}),
        ("item_loader", "TokensLoader"),
        ("temporal_schema", {}),
        ("filename", "../../chunk-0-0.bin"),
    ],
)
def test_what_could_run_code_is_not_read(folder, tmp_path, monkeypatch, place, split, key, value):
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('marker').touch()\nf = dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    file = folder / split / "index.json"
    index = json.loads(file.read_bytes())
    (index["chunks"][0] if key == "filename" else index["config"])[key] = value
    file.write_text(json.dumps(index))
    with pytest.raises(UserError) as caught:
        Shards(f"{place}{folder}", tmp_path / "cache").split("train").read(torch.tensor([0]))
    line = "can't be read (it was not written by the command shards of this version; reading it could run code)"
    assert str(caught.value) == f"data.path: {place}{folder}/{split} {line}"
    assert not Path("marker").exists()
