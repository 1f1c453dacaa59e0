"""Saves of sharded checkpoints that are cut short: by kill -9, or by a disk that is full."""

import time

import pytest
import torch

from litlab.checkpointing.io import SHARDS, AtomicCheckpointIO, newest_checkpoint, remove_shards
from tests.litlab.checkpointing.sharding import finish, start


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Folders in which one of two processes was killed while it wrote its part of the second checkpoint."""
    folders = {asynchronous: tmp_path_factory.mktemp("killed") for asynchronous in (False, True)}
    groups = {
        asynchronous: start(folder, 2, {"run": {"steps": 8, "save": [2, 6], "asynchronous": asynchronous, "slow": 60}})
        for asynchronous, folder in folders.items()
    }
    for asynchronous, (first, last) in groups.items():
        until = time.monotonic() + 120
        while not (folders[asynchronous] / "run.writing").exists():
            assert time.monotonic() < until, first.printed() + last.printed()
            time.sleep(0.05)
        last.kill()
    for first, _ in groups.values():
        time.sleep(0.5)  # as long as it may take to notice
        first.kill()
        first.wait()
    return folders


@pytest.mark.parametrize("asynchronous", [False, True])
def test_kill_9_leaves_the_checkpoint_before(killed, asynchronous):
    folder = killed[asynchronous]
    path = folder / "run.ckpt"
    assert newest_checkpoint(folder) == path
    kept = AtomicCheckpointIO().load_checkpoint(path)
    assert kept["global_step"] == 2
    assert list(folder.glob("run.ckpt.shards-6-*"))
    remove_shards(path, torch.load(path, weights_only=True)[SHARDS])  # as the next save does
    assert not list(folder.glob("run.ckpt.shards-6-*"))
    assert AtomicCheckpointIO().load_checkpoint(path)["state_dict"].keys() == kept["state_dict"].keys()


def test_too_little_room_is_one_line_from_all_processes(tmp_path):
    """Of one process, which is not the first; in the background, it is found when the training ends."""
    groups = {}
    for name, asynchronous in {"now": False, "background": True}.items():
        (tmp_path / name).mkdir()
        case = {"steps": 6, "save": [2, 5], "asynchronous": asynchronous, "room": 4096}
        groups[name] = start(tmp_path / name, 2, {"run": case})
    for name, group in groups.items():
        for printed in finish(group, code=2):
            line = printed.splitlines()[-1]
            for part in (
                "error: checkpoint",
                "run.ckpt: it can't be written",
                "File too large",
                "what was there is intact",
            ):
                assert part in line
            assert "Traceback" not in printed
        assert AtomicCheckpointIO().load_checkpoint(tmp_path / name / "run.ckpt")["global_step"] == 2
        assert sorted(path.name.split("-")[0] for path in (tmp_path / name).iterdir()) == [
            "run.ckpt",
            "run.ckpt.shards",
        ]
