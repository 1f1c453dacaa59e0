"""Sharded checkpoints: read as whole ones, resumed by other processes, damaged, and cut short."""

import pickle
import re
import shutil
import zlib

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata

from litlab.checkpointing.io import (
    SHARDS,
    AtomicCheckpointIO,
    find_newest_checkpoint,
    load_checkpoint,
)
from litlab.errors import UserError
from litlab.runs import consolidate
from tests.litlab.checkpointing.resuming import differences, leaves
from tests.litlab.parallel import program
from tests.tiny_files import flip


@pytest.fixture
def copy(folder, tmp_path):
    """One of them, to be damaged."""
    shutil.copy(folder / "fsdp2_rich.ckpt", tmp_path)
    shards, _ = torch.load(folder / "fsdp2_rich.ckpt", weights_only=True)[SHARDS]
    shutil.copytree(folder / shards, tmp_path / shards)
    return tmp_path / "fsdp2_rich.ckpt", tmp_path / shards


def test_what_a_save_in_the_background_replaces_is_removed(folder):
    assert load_checkpoint(folder / "fsdp2_rich-best.ckpt-4")["global_step"] == 4
    assert not list(folder.glob("fsdp2_rich-best.ckpt-2*"))
    assert len(list(folder.glob("fsdp2_rich-4.ckpt.shards-*"))) == 1


def test_one_file_is_made_of_it(folder, copy, capsys):
    path, _ = copy
    output = path.with_suffix(".pt")
    assert consolidate.main([str(path)]) == 0
    assert f"Written: {output}" in capsys.readouterr().out
    one, shared = torch.load(output, weights_only=True), AtomicCheckpointIO().load_checkpoint(path)
    parts = [[file["state_dict"], file["optimizer_states"]] for file in (one, shared)]
    assert differences(*(dict(leaves(part)) for part in parts)) == []
    assert consolidate.main([str(path)]) == 0


class Payload:
    def __reduce__(self):
        return open, ("executed", "w")


def test_nothing_in_the_metadata_is_executed(copy, monkeypatch, tmp_path):
    path, shards = copy
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(Metadata({}, storage_data=Payload()))
    (shards / ".metadata").write_bytes(content)
    torch.save(
        {**torch.load(path, weights_only=True), SHARDS: (shards.name, zlib.crc32(content))}, path
    )
    with pytest.raises(
        UserError, match=r"can't be read \(.metadata names _?io.open, which is no part"
    ) as raised:
        load_checkpoint(path)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "executed").exists()


def test_shards_that_are_named_wrongly_cut_or_missing_are_one_line(copy):
    path, shards = copy

    def assert_unreadable():
        with pytest.raises(UserError, match=r"its shards can't be read") as raised:
            AtomicCheckpointIO().load_checkpoint(path)
        assert "\n" not in str(raised.value)

    part = shards / "__1_0.distcp"
    whole = part.read_bytes()
    part.write_bytes(whole[:-2000])
    assert_unreadable()
    with pytest.raises(
        UserError, match=r"\(__1_0.distcp is cut off\), and no other one can be used"
    ):
        find_newest_checkpoint(path.parent)
    part.write_bytes(whole)
    AtomicCheckpointIO().load_checkpoint(path)
    for file in (part, shards / ".metadata"):
        flip(file, 0.5)
        assert_unreadable()
        flip(file, 0.5)
    torch.save({**torch.load(path, weights_only=True), SHARDS: ("../elsewhere", 0)}, path)
    assert_unreadable()


def test_shards_are_removed_with_the_file_and_links_are_left_alone(copy, tmp_path):
    path, shards = copy
    elsewhere = shards.rename(tmp_path / "elsewhere")
    shards.symlink_to(elsewhere)
    (tmp_path / "fsdp2_rich.ckpt.shards-left").mkdir()  # of a save that was killed
    AtomicCheckpointIO().remove_checkpoint(path)
    assert (elsewhere / ".metadata").is_file()
    assert sorted(item.name for item in tmp_path.iterdir() if not item.is_symlink()) == [
        "elsewhere"
    ]


# Saves that are cut short


def test_too_little_room_is_one_line_from_all_processes(tmp_path):
    """Of one process, which is not the first; in the background, it is found by the next save."""
    case = {"strategy": "fsdp2", "parts": True, "room": 4096}
    for printed in program.run(tmp_path, 2, {"run": case}, code=2):
        assert re.search(
            r"^error: checkpoint .*run-best.ckpt-4: File too large", printed, re.MULTILINE
        )
    assert AtomicCheckpointIO().load_checkpoint(tmp_path / "run-4.ckpt")["global_step"] == 2
    assert len(list(tmp_path.glob("run-4.ckpt.shards-*"))) == 1
