"""Sharded checkpoints: read as whole ones, resumed by other processes, and damaged."""

import json
import pickle
import shutil

import pytest
import torch
from lightning.pytorch import Trainer
from torch.distributed.checkpoint.metadata import Metadata

from litlab.callbacks import EMA
from litlab.checkpointing.io import SHARDS, AtomicCheckpointIO, load_checkpoint
from litlab.checkpointing.resume import ExactResume
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
    shards = torch.load(folder / "half.ckpt", weights_only=True)[SHARDS]
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
    assert load_checkpoint(path, weights=False)["state_dict"].keys() == load_checkpoint(path)["state_dict"].keys()
    assert sorted(item.name for item in folder.glob("half.ckpt.shards*")) == [small[SHARDS]]


def test_the_same_processes_go_on_bit_for_bit_within_an_epoch(folder):
    """From a checkpoint that was written in the background, while the weights already changed."""
    assert torch.load(folder / "within.ckpt", weights_only=True)["global_step"] == 5
    assert losses(folder, "resumed") == losses(folder, "full")[5:]
    one, other = (torch.load(folder / f"{name}.whole.pt") for name in ("resumed", "full"))
    for weight, value in other["state_dict"].items():
        assert torch.equal(one["state_dict"][weight], value)


def test_what_a_save_in_the_background_replaces_is_removed(folder):
    assert torch.load(folder / "best-5.ckpt", weights_only=True)["global_step"] == 5
    assert load_checkpoint(folder / "best-5.ckpt")["global_step"] == 5
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
    model = classifier(size=18, heads=2)
    trainer.fit(model, Tokens(batch_size=24), ckpt_path=str(folder / "half.ckpt"), weights_only=True)
    assert is_close(counted.values, losses(folder, "full")[4:])


def test_one_file_is_made_of_it(folder, copy, capsys):
    path, _ = copy
    output = path.with_suffix(".pt")
    assert consolidate.main([str(path)]) == 0
    assert f"Written: {output}" in capsys.readouterr().out
    one, shared = torch.load(output, weights_only=True), torch.load(folder / "half.whole.pt")
    assert all(torch.equal(one["state_dict"][name], value) for name, value in shared["state_dict"].items())
    moment = one["optimizer_states"][0]["state"][0]["exp_avg"]
    assert torch.equal(moment, shared["state"][0]["exp_avg"])
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


@pytest.mark.parametrize("wrong", [5, {}, "", "../elsewhere"])
def test_what_a_file_says_wrongly_of_its_shards_is_one_line(copy, wrong):
    path, _ = copy
    small = torch.load(path, weights_only=True)
    torch.save({**small, SHARDS: wrong}, path)
    with pytest.raises(UserError, match=r"its shards can't be read \(") as raised:
        AtomicCheckpointIO().load_checkpoint(path)
    assert "\n" not in str(raised.value)


def test_shards_that_are_missing_or_cut_are_one_line(copy):
    path, shards = copy
    part = shards / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-2000])
    with pytest.raises(UserError, match="its shards can't be read"):
        AtomicCheckpointIO().load_checkpoint(path)
    shutil.rmtree(shards)
    with pytest.raises(UserError, match="its shards can't be read"):
        load_checkpoint(path)


def test_shards_are_removed_with_the_file_and_links_are_left_alone(copy, tmp_path):
    path, shards = copy
    elsewhere = shards.rename(tmp_path / "elsewhere")
    shards.symlink_to(elsewhere)
    (tmp_path / "half.ckpt.shards-left").mkdir()  # of a save that was killed
    AtomicCheckpointIO().remove_checkpoint(path)
    assert (elsewhere / ".metadata").is_file()
    assert sorted(item.name for item in tmp_path.iterdir() if not item.is_symlink()) == ["elsewhere"]
