"""Checkpoint files under full disks, killed processes and flipped bits."""

import os
import random
import resource
import signal
import time

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.plugins import TorchCheckpointIO
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from litlab.checkpointing import io as checkpoint_files
from litlab.checkpointing.io import AtomicCheckpointIO, newest_intact
from litlab.checkpointing.load import find_corruption
from litlab.checkpointing.sharded import ShardedCheckpointIO
from litlab.cli.trainer import plugins
from litlab.errors import UserError
from litlab.parallel.strategy import ShardedStrategy


def checkpoint(step: int, size: int = 1000) -> dict:
    return {"global_step": step, "state_dict": {"weight": torch.full((size,), float(step))}}


def write(path, step: int, size: int = 1000):
    AtomicCheckpointIO().save_checkpoint(checkpoint(step, size), path)
    return path


def flip(path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def names(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_written_is_read_again_and_nothing_else_is_left(tmp_path):
    path = write(tmp_path / "new" / "last.ckpt", 3)
    write(path, 4)
    loaded = AtomicCheckpointIO().load_checkpoint(path)
    assert loaded["global_step"] == 4
    assert torch.equal(loaded["state_dict"]["weight"], torch.full((1000,), 4.0))
    assert names(path.parent) == ["last.ckpt"]
    AtomicCheckpointIO().remove_checkpoint(path)
    assert names(path.parent) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_the_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, checkpoint_files.Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
    monkeypatch.setattr(checkpoint_files.Path, "replace", lambda *a: (done.append("rename"), replace(*a)))
    write(tmp_path / "last.ckpt", 1)
    assert len(done) == 3
    assert done[0].endswith(".tmp")
    assert done[0].startswith(str(tmp_path))
    assert done[1:] == ["rename", str(tmp_path)]


def test_a_link_becomes_a_file_and_its_target_stays(tmp_path):
    target = write(tmp_path / "epoch=0.ckpt", 1)
    link = tmp_path / "last.ckpt"
    link.symlink_to(target)
    write(link, 2)
    assert not link.is_symlink()
    assert torch.load(target)["global_step"] == 1


def test_pickled_code_is_not_loaded(tmp_path):
    torch.save({"global_step": 1, "code": os.system}, tmp_path / "last.ckpt")
    with pytest.raises(Exception, match="weights_only"):
        AtomicCheckpointIO().load_checkpoint(tmp_path / "last.ckpt", weights_only=False)


def test_a_file_size_limit_is_one_line_and_the_old_file_stays(tmp_path):
    path = write(tmp_path / "last.ckpt", 1)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    try:
        with pytest.raises(UserError) as raised:
            write(path, 2, size=2**20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(raised.value)
    for part in (str(path), "4.0 MiB needed", "ulimit -f", "intact"):
        assert part in str(raised.value)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["last.ckpt"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told_from_other_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_files.Path, "with_name", lambda path, name: checkpoint_files.Path("/dev/full"))
    monkeypatch.setattr(checkpoint_files.Path, "unlink", lambda path, missing_ok: None)
    with pytest.raises(UserError, match="the disk is full"):
        write(tmp_path / "last.ckpt", 2)


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(Exception, match=r"pickle|local object"):
        AtomicCheckpointIO().save_checkpoint({"state_dict": lambda: None}, tmp_path / "last.ckpt")
    assert names(tmp_path) == []


def test_what_killed_processes_left_is_swept(tmp_path):
    """One process is killed while it writes; one on another host may still write; one of an hour ago does not."""
    path = write(tmp_path / "last.ckpt", 1)
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        torch.save = lambda *_: (os.write(writing, b"."), time.sleep(60))
        try:
            AtomicCheckpointIO().save_checkpoint({}, path)
        finally:
            os._exit(1)
    os.read(reading, 1)  # until it writes
    write(path, 2)
    alive = [name for name in names(tmp_path) if name.endswith(".tmp")]
    assert len(alive) == 1, "the file of a living process is its own"
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    for name, age in (("elsewhere.7", 60), ("elsewhere.8", 2 * 3600)):
        other = tmp_path / f".last.ckpt.{name}.tmp"
        other.touch()
        os.utime(other, (time.time() - age,) * 2)
    write(path, 3)
    assert names(tmp_path) == [".last.ckpt.elsewhere.7.tmp", "last.ckpt"]


@pytest.fixture
def three(tmp_path):
    """Three checkpoints; names and times say another order than their steps."""
    for number, (name, step) in enumerate({"a": 30, "last": 20, "z": 10}.items()):
        os.utime(write(tmp_path / f"{name}.ckpt", step), (number, number))
    return tmp_path


def test_the_newest_is_that_of_most_steps(three):
    assert newest_intact(three) == (three / "a.ckpt", [])
    os.utime(write(three / "b.ckpt", 30), (9, 9))
    assert newest_intact(three) == (three / "b.ckpt", [])


@pytest.mark.parametrize("harm", ["truncated", "flipped", "empty"])
def test_a_broken_one_is_skipped_for_the_one_before(three, harm):
    path = three / "a.ckpt"
    if harm == "flipped":  # within the weights, where torch.load notices nothing
        flip(path, 8 * (path.read_bytes().index(torch.full((4,), 30.0).numpy().tobytes()) + 100))
        assert torch.load(path)["global_step"] == 30
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 if harm == "truncated" else 0])
    found, notes = newest_intact(three)
    assert found == three / "last.ckpt"
    assert len(notes) == 1
    assert f"checkpoint {path} is damaged" in notes[0]
    assert notes[0].endswith("skipped.")
    assert "\n" not in notes[0]


def test_none_is_whole(three):
    for path in three.iterdir():
        path.write_bytes(b"")
    found, notes = newest_intact(three)
    assert found is None
    assert len(notes) == 3
    assert newest_intact(three / "missing") == (None, [])


def test_no_flipped_bit_changes_what_is_loaded(tmp_path):
    """Anywhere in the file: either the damage is seen, or it hit what means nothing (padding, times)."""
    path = write(tmp_path / "last.ckpt", 5, size=8)
    whole = path.read_bytes()
    rng = random.Random(0)
    seen = 0
    for bit in rng.sample(range(8 * len(whole)), 150):
        flip(path, bit)
        if newest_intact(tmp_path)[0] is None:
            seen += 1
        else:
            loaded = AtomicCheckpointIO().load_checkpoint(path)
            assert loaded["global_step"] == 5
            assert torch.equal(loaded["state_dict"]["weight"], torch.full((8,), 5.0))
        path.write_bytes(whole)
    assert seen > 40


class Watched(AtomicCheckpointIO):
    """Looks at what is whole after each change of the folder."""

    def __init__(self, folder):
        self.folder, self.fewest, self.removed = folder, 9, 0

    def look(self):
        self.fewest = min(self.fewest, sum(find_corruption(path) is None for path in self.folder.glob("*.ckpt")))

    def save_checkpoint(self, *arguments, **keywords):
        super().save_checkpoint(*arguments, **keywords)
        self.look()

    def remove_checkpoint(self, path):
        super().remove_checkpoint(path)
        self.removed += 1
        self.look()


@pytest.mark.parametrize("settings", [{"monitor": None}, {"monitor": "step", "mode": "max", "save_last": True}])
def test_there_is_no_moment_without_a_whole_checkpoint(tmp_path, settings):
    watched = Watched(tmp_path / "kept")
    keep = ModelCheckpoint(tmp_path / "kept", **settings)
    trainer = Trainer(
        max_epochs=4, limit_train_batches=2, limit_val_batches=0, accelerator="cpu", logger=False, callbacks=[keep],
        plugins=[watched], enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(BoringModel())
    assert watched.removed >= 3
    assert watched.fewest >= 1
    assert newest_intact(tmp_path / "kept")[0] is not None


class WritesItsOwn(DDPStrategy):
    """As DeepSpeedStrategy is one."""


@pytest.mark.parametrize(
    ("strategy", "writer"),
    [
        ("auto", AtomicCheckpointIO), ("ddp_find_unused_parameters_true", AtomicCheckpointIO),
        (DDPStrategy(bucket_cap_mb=10), AtomicCheckpointIO), ("pipeline", AtomicCheckpointIO),
        ("fsdp2", ShardedCheckpointIO), (ShardedStrategy(), ShardedCheckpointIO), ("fsdp", None),
        (WritesItsOwn(), None), (SingleDeviceStrategy(), AtomicCheckpointIO),
    ],
)  # fmt: skip
def test_which_strategy_writes_by_what(strategy, writer):
    assert [type(plugin) for plugin in plugins({"plugins": None, "strategy": strategy})] == [writer] * bool(writer)
    own = TorchCheckpointIO()
    assert plugins({"plugins": own, "strategy": strategy}) == [own]
