"""Sharded checkpoints: read as whole ones, resumed by other processes, damaged, and cut short."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata

from litlab.checkpointing.io import SHARDS, AtomicCheckpointIO, load_checkpoint
from litlab.errors import UserError
from litlab.runs import consolidate
from tests.conftest import ROOT
from tests.litlab.parallel.program import start, wait

PROGRAM = ROOT / "tests/litlab/checkpointing/sharded_program.py"


def run(folder: Path, count: int, cases: dict[str, dict], code: int = 0) -> list[str]:
    """Train one case after another in some processes, as the program's docstring says; return what they printed."""
    return wait(start(PROGRAM, count, folder, json.dumps(cases)), code)


def losses(folder, name: str) -> list[float]:
    return json.loads((folder / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def folder(make_once):
    """Checkpoints of two and four processes: after an epoch of four steps, within the next one, and after that."""
    cases = {
        "full": {"steps": 8},
        "within": {"steps": 7, "save": [2, 5], "asynchronous": True, "slow": 0.5, "best": True},
        "half": {"steps": 4},
        "resumed": {"steps": 8, "resume": "within.ckpt"},
        "layers": {"tensor": 2, "steps": 8, "resume": "half.ckpt"},
    }

    def fill(folder):
        run(folder, 2, cases)
        run(folder, 4, {"both": {"tensor": 2, "steps": 8, "resume": "half.ckpt"}})

    return make_once("sharded", fill)


@pytest.fixture
def copy(folder, tmp_path):
    """One of them, to be damaged."""
    shutil.copy(folder / "half.ckpt", tmp_path)
    shards = torch.load(folder / "half.ckpt", weights_only=True)[SHARDS]
    shutil.copytree(folder / shards, tmp_path / shards)
    return tmp_path / "half.ckpt", tmp_path / shards


@pytest.mark.parametrize("name", ["half", "both"])
def test_it_is_read_as_the_whole_tensors_that_the_processes_share(folder, name):
    read = AtomicCheckpointIO().load_checkpoint(folder / f"{name}.ckpt")
    shared = torch.load(folder / f"{name}.whole.pt")
    assert read["state_dict"].keys() == shared["state_dict"].keys()
    for weight, value in shared["state_dict"].items():
        assert torch.equal(read["state_dict"][weight], value), weight
    for number, state in shared["state"].items():
        for entry, value in state.items():
            assert torch.equal(read["optimizer_states"][0]["state"][number][entry], value), entry


def test_the_same_processes_go_on_bit_for_bit_within_an_epoch(folder):
    """From a checkpoint that was written in the background, while the weights already changed."""
    assert torch.load(folder / "within.ckpt", weights_only=True)["global_step"] == 5
    assert losses(folder, "resumed") == losses(folder, "full")[5:]
    one, other = (torch.load(folder / f"{name}.whole.pt") for name in ("resumed", "full"))
    for weight, value in other["state_dict"].items():
        assert torch.equal(one["state_dict"][weight], value)


def test_what_a_save_in_the_background_replaces_is_removed(folder):
    assert load_checkpoint(folder / "best-5.ckpt")["global_step"] == 5
    assert not list(folder.glob("best-2*"))


@pytest.mark.parametrize("name", ["layers", "both"])
def test_others_go_on_with_the_same_losses(folder, name):
    assert losses(folder, name) == pytest.approx(losses(folder, "full")[4:], rel=1e-4, abs=1e-6)


def test_one_file_is_made_of_it(folder, copy, capsys):
    path, _ = copy
    output = path.with_suffix(".pt")
    assert consolidate.main([str(path)]) == 0
    assert f"Written: {output}" in capsys.readouterr().out
    one, shared = torch.load(output, weights_only=True), torch.load(folder / "half.whole.pt")
    assert all(torch.equal(one["state_dict"][name], value) for name, value in shared["state_dict"].items())
    assert one["optimizer_states"][0]["state"].keys() == shared["state"].keys()
    with pytest.raises(UserError, match=r"half\.pt exists"):
        consolidate.main([str(path)])


class Payload:
    def __reduce__(self):
        return open, ("executed", "w")


def test_nothing_in_the_metadata_is_executed(copy, monkeypatch, tmp_path):
    path, shards = copy
    monkeypatch.chdir(tmp_path)
    (shards / ".metadata").write_bytes(pickle.dumps(Metadata({}, storage_data=Payload())))
    with pytest.raises(UserError, match=r"can't be read \(.metadata names _?io.open, which is no part") as raised:
        load_checkpoint(path)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "executed").exists()


def test_shards_that_are_named_wrongly_cut_or_missing_are_one_line(copy):
    path, shards = copy

    def assert_unreadable() -> None:
        with pytest.raises(UserError, match=r"its shards can't be read") as raised:
            AtomicCheckpointIO().load_checkpoint(path)
        assert "\n" not in str(raised.value)

    part = shards / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-2000])
    assert_unreadable()
    torch.save({**torch.load(path, weights_only=True), SHARDS: "../elsewhere"}, path)
    assert_unreadable()


def test_shards_are_removed_with_the_file_and_links_are_left_alone(copy, tmp_path):
    path, shards = copy
    elsewhere = shards.rename(tmp_path / "elsewhere")
    shards.symlink_to(elsewhere)
    (tmp_path / "half.ckpt.shards-left").mkdir()  # of a save that was killed
    AtomicCheckpointIO().remove_checkpoint(path)
    assert (elsewhere / ".metadata").is_file()
    assert sorted(item.name for item in tmp_path.iterdir() if not item.is_symlink()) == ["elsewhere"]


# Saves that are cut short


def test_too_little_room_is_one_line_from_all_processes(tmp_path):
    """Of one process, which is not the first; in the background, it is found when the training ends."""
    case = {"steps": 6, "save": [2, 5], "asynchronous": True, "room": 4096}
    for printed in run(tmp_path, 2, {"run": case}, code=2):
        assert re.search(r"^error: checkpoint .*run.ckpt: File too large", printed, re.MULTILINE)
    assert AtomicCheckpointIO().load_checkpoint(tmp_path / "run.ckpt")["global_step"] == 2
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.shards"]
