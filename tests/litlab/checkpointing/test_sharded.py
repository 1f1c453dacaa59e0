"""Sharded checkpoints: read as whole ones, resumed by other processes, and damaged."""

import io
import json
import os
import pickle
import shutil
import zipfile

import pytest
import torch
from lightning.pytorch import Trainer
from torch.distributed.checkpoint.metadata import Metadata

from litlab.callbacks import EMA
from litlab.checkpointing import AtomicCheckpointIO, ExactResume, load_checkpoint
from litlab.checkpointing.io import newest_intact
from litlab.checkpointing.load import find_corruption
from litlab.checkpointing.shard_tensors import fill
from litlab.checkpointing.shards import NAMED, UNFINISHED, Shards, remove_unnamed, shards_of, small_file
from litlab.errors import UserError
from litlab.runs import consolidate
from tests.litlab.checkpointing.sharding import finish, start
from tests.litlab.parallel.tiny import Losses, Tokens, classifier


def losses(folder, name: str) -> list[float]:
    return json.loads((folder / f"{name}.json").read_text())


def is_close(some: list[float], others: list[float]) -> bool:
    """Other processes add up in another order, and AdamW divides small gradients by small numbers."""
    return torch.allclose(torch.tensor(some), torch.tensor(others), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Checkpoints of two and four processes: after an epoch of four steps, within the next one, and after that.

    Those without tensor parallelism hold an average of the weights, too.
    """
    path = tmp_path_factory.mktemp("sharded")
    within = {"steps": 7, "save": [2, 5], "asynchronous": True, "slow": 0.5, "averages": True, "best": True}
    cases = {
        "full": {"steps": 8, "save": [4, 8], "averages": True},
        "within": within,
        "half": {"steps": 4, "averages": True},
        "tensor": {"tensor": 2, "steps": 4},
    }
    cases |= {
        "resumed": {"steps": 8, "resume": "within.ckpt", "averages": True},
        "layers": {"tensor": 2, "steps": 8, "resume": "half.ckpt", "averages": True},
    }
    finish(start(path, 2, cases))
    cases = {
        "four": {"steps": 8, "resume": "half.ckpt", "averages": True},
        "both": {"tensor": 2, "steps": 8, "resume": "tensor.ckpt"},
    }
    finish(start(path, 4, cases))
    return path


@pytest.fixture
def copy(folder, tmp_path):
    """One of them, to be damaged."""
    shutil.copy(folder / "half.ckpt", tmp_path)
    shards = shards_of(folder / "half.ckpt").folder
    shutil.copytree(folder / shards, tmp_path / shards)
    return tmp_path / "half.ckpt", tmp_path / shards


@pytest.mark.parametrize("name", ["half", "tensor", "four", "both"])
def test_it_is_read_as_the_whole_tensors_that_the_processes_share(folder, name):
    read = AtomicCheckpointIO().load_checkpoint(folder / f"{name}.ckpt")
    shared = torch.load(folder / f"{name}.whole.pt")
    assert read["state_dict"].keys() == shared["state_dict"].keys()
    for weight, value in shared["state_dict"].items():
        assert torch.equal(read["state_dict"][weight], value), weight
    for number, state in shared["state"].items():
        for entry, value in state.items():
            assert torch.equal(read["optimizer_states"][0]["state"][number][entry], value), entry


def test_the_file_is_small_and_says_all_else(folder):
    path = folder / "half.ckpt"
    small = torch.load(path, weights_only=True)
    assert small["global_step"] == 4
    assert newest_intact(folder)[1] == []
    assert load_checkpoint(path, weights=False)["state_dict"].keys() == load_checkpoint(path)["state_dict"].keys()
    assert sorted(item.name for item in folder.glob("half.ckpt.shards*")) == [shards_of(path).folder]


def test_the_same_processes_go_on_bit_for_bit_within_an_epoch(folder):
    """From a checkpoint that was written in the background, while the weights already changed."""
    assert torch.load(folder / "within.ckpt", weights_only=True)["global_step"] == 5
    assert losses(folder, "resumed") == losses(folder, "full")[5:]
    one, other = (torch.load(folder / f"{name}.whole.pt") for name in ("resumed", "full"))
    for weight, value in other["state_dict"].items():
        assert torch.equal(one["state_dict"][weight], value)


def test_two_saves_are_written_at_once_and_what_they_replace_is_removed(folder):
    assert torch.load(folder / "best-5.ckpt", weights_only=True)["global_step"] == 5
    assert find_corruption(folder / "best-5.ckpt") is None
    assert not list(folder.glob("best-2*"))


def test_others_go_on_with_the_same_losses(folder):
    for name in ("layers", "four", "both"):
        assert is_close(losses(folder, name), losses(folder, "full")[4:]), name


def test_one_plain_process_goes_on_with_the_same_losses(folder, tmp_path):
    counted = Losses()
    trainer = Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, limit_val_batches=0, use_distributed_sampler=False,
        callbacks=[counted, ExactResume(), EMA(0.5)], plugins=[AtomicCheckpointIO()], default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(classifier(), Tokens(batch_size=24), ckpt_path=str(folder / "half.ckpt"), weights_only=True)
    assert is_close(counted.values, losses(folder, "full")[4:])


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damaged(path) -> str:
    with pytest.raises(UserError) as raised:
        load_checkpoint(path)
    newest, notes = newest_intact(path.parent)
    assert newest is None
    assert len(notes) == 1
    assert find_corruption(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_damage_is_found(copy):
    path, shards = copy
    part = shards / "__1_0.distcp"
    before = part.read_bytes()
    flip(part)
    assert "__1_0.distcp does not match its checksum" in damaged(path)
    part.write_bytes(before[:-100])
    assert "__1_0.distcp does not match its checksum" in damaged(path)
    part.unlink()
    assert "__1_0.distcp is missing" in damaged(path)
    shutil.rmtree(shards)
    assert f"the folder {shards.name} has to be beside it" in damaged(path)


def test_one_file_is_made_of_it(folder, tmp_path, capsys):
    output = tmp_path / "one.ckpt"
    assert consolidate.main([str(folder / "half.ckpt"), "--output", str(output)]) == 0
    assert f"Written: {output}" in capsys.readouterr().out
    one, shared = torch.load(output, weights_only=True), torch.load(folder / "half.whole.pt")
    assert all(torch.equal(one["state_dict"][name], value) for name, value in shared["state_dict"].items())
    moment = one["optimizer_states"][0]["state"][0]["exp_avg"]
    assert torch.equal(moment, shared["state"][0]["exp_avg"])
    assert find_corruption(output) is None
    assert consolidate.main([str(output)]) == 2
    assert consolidate.main([str(folder / "half.ckpt"), "--output", str(output)]) == 2
    assert consolidate.main([str(folder / "half.ckpt"), "--output", str(output / "one.pt")]) == 2
    wrong = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in wrong] == ["error"] * 3
    assert "one.pt can't be written" in wrong[2]


class Payload:
    def __reduce__(self):
        return open, ("executed", "w")


def test_nothing_in_the_metadata_is_executed(copy, monkeypatch, tmp_path):
    path, shards = copy
    monkeypatch.chdir(tmp_path)
    (shards / ".metadata").write_bytes(pickle.dumps(Metadata({}, storage_data=Payload())))
    assert ".metadata does not match its checksum" in damaged(path)
    with pytest.raises(UserError, match=r"can't be read \(.metadata names io.open, which is no part") as raised:
        fill(path, torch.load(path, weights_only=True))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("shards", [Shards("../others.shards-1", {}, []), Shards("a.shards-1", {"../others": 0}, [])])
def test_what_is_elsewhere_is_not_read(tmp_path, shards):
    stream = io.BytesIO()
    torch.save({"global_step": 1, "state_dict": {}}, stream)
    path = tmp_path / "last.ckpt"
    path.write_bytes(small_file(stream.getvalue(), shards))
    assert find_corruption(path) == "its shards are not in a folder beside it"


@pytest.mark.parametrize(
    "wrong", [{"files": []}, {"files": {}, "parameters": 5}, {"folder": 5}, {"parameters": [[]]}, {"more": 1}]
)
def test_what_a_file_says_wrongly_of_its_shards_is_one_line(copy, wrong):
    path, _ = copy
    told = {**vars(shards_of(path)), **wrong}
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(path.with_name("wrong.ckpt"), "w") as changed:
        for name in whole.namelist():
            changed.writestr(name, json.dumps(told) if name == NAMED else whole.read(name))
    with pytest.raises(UserError) as raised:
        AtomicCheckpointIO().load_checkpoint(path.with_name("wrong.ckpt"))
    assert "\n" not in str(raised.value)


def test_what_a_full_disk_left_is_removed_after_an_hour(copy):
    path, shards = copy
    mark = shards / UNFINISHED
    mark.touch()  # it had no room for what it says
    path.unlink()
    remove_unnamed(path.parent)
    assert shards.is_dir()
    os.utime(mark, (0, 0))
    remove_unnamed(path.parent)
    assert not shards.exists()


def test_removed_with_the_file_unless_another_names_it(copy):
    path, _ = copy
    other = shutil.copy(path, path.with_name("other.ckpt"))
    AtomicCheckpointIO().remove_checkpoint(path)
    assert find_corruption(other) is None
    AtomicCheckpointIO().save_checkpoint({"global_step": 9, "state_dict": {}}, other)
    assert sorted(item.name for item in path.parent.iterdir()) == ["other.ckpt"]


def test_a_link_to_a_folder_elsewhere_is_left_alone(copy, tmp_path):
    path, shards = copy
    elsewhere = shards.rename(tmp_path / "elsewhere")
    shards.symlink_to(elsewhere)
    AtomicCheckpointIO().remove_checkpoint(path)
    assert (elsewhere / ".metadata").is_file()
    assert not (elsewhere / "unfinished").exists()
