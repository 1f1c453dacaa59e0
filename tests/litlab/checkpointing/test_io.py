"""Checkpoint files under full disks and killed processes, and which of them a run goes on with."""

import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from litlab.checkpointing.io import AtomicCheckpointIO, find_newest_checkpoint, load_checkpoint
from litlab.errors import UserError
from tests.tiny_files import flip


def write(path, step: int, size: int = 1000):
    weights = {"weight": torch.full((size,), float(step))}
    checkpoint = {"global_step": step, "state_dict": weights, "pytorch-lightning_version": "2.6.6"}
    AtomicCheckpointIO().save_checkpoint(checkpoint, path)
    return path


def names(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_is_written_is_read_again_and_nothing_else_is_left(tmp_path):
    path = write(tmp_path / "new" / "last.ckpt", 3)
    path.with_name(".last.ckpt.elsewhere.7.tmp").touch()  # of a killed process
    write(path, 4)
    assert names(path.parent) == ["last.ckpt"]
    assert load_checkpoint(path)["state_dict"]["weight"].eq(4).all()
    AtomicCheckpointIO().remove_checkpoint(path)
    AtomicCheckpointIO().remove_checkpoint(path)
    assert names(path.parent) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_the_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    done, replace = [], Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: done.append(os.readlink(f"/proc/self/fd/{fd}")))
    monkeypatch.setattr(Path, "replace", lambda *a: (done.append("rename"), replace(*a)))
    write(tmp_path / "last.ckpt", 1)
    assert done[0].endswith(".tmp")
    assert done[0].startswith(str(tmp_path))
    assert done[1:] == ["rename", str(tmp_path)]


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
    line = f"checkpoint {path}: File too large; what was there is intact"
    assert str(raised.value).startswith(line)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["last.ckpt"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"global_step": 1, "code": os.system}, "it holds more than weights and plain settings"),
        ([], "it has no state_dict"),
        (None, "there is no such file"),
        (b"", "it can't be read"),
    ],
)
def test_what_can_not_be_used_is_one_line(tmp_path, content, says):
    path = tmp_path / "some.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UserError, match=f"^checkpoint .*some.ckpt: .*{says}") as raised:
        load_checkpoint(path)
    assert "\n" not in str(raised.value)


def test_the_last_one_is_resumed_or_the_newest_that_can_be_read(tmp_path, caplog):
    assert find_newest_checkpoint(tmp_path) is None
    first, second = write(tmp_path / "b.ckpt", 10), write(tmp_path / "a.ckpt", 30)
    assert find_newest_checkpoint(tmp_path) == second
    last = write(tmp_path / "last.ckpt", 20)
    os.utime(last, (0, 0))  # older than the others
    assert find_newest_checkpoint(tmp_path) == last
    last.write_bytes(last.read_bytes()[:2000])
    assert find_newest_checkpoint(tmp_path) == second
    assert "last.ckpt: it can't be read (it is no whole zip file, as torch.save" in caplog.text
    assert "; a.ckpt is used" in caplog.text
    second.write_bytes(b"")
    first.unlink()
    says = r"last.ckpt: it can't be read .*, and no other one can be used; start a new"
    with pytest.raises(UserError, match=says):
        find_newest_checkpoint(tmp_path)


def test_a_flipped_bit_is_found_wherever_it_is(tmp_path):
    """Torch doesn't find those in a tensor. What is between the records means nothing."""
    path, harmless = write(tmp_path / "last.ckpt", 2), []
    for percent in range(101):
        flip(path, percent / 100)
        with suppress(UserError):
            assert load_checkpoint(path)["state_dict"]["weight"].eq(2).all()
            harmless.append(percent)
        flip(path, percent / 100)
    assert not {0, *range(20, 80)} & {*harmless}


@pytest.mark.parametrize("kind", ["FIFO", "link to nowhere"])
def test_what_is_no_file_is_not_opened(tmp_path, caplog, kind):
    best, last = write(tmp_path / "best.ckpt", 1), tmp_path / "last.ckpt"
    os.mkfifo(last) if kind == "FIFO" else last.symlink_to("nowhere")
    assert find_newest_checkpoint(tmp_path) == best
    assert "last.ckpt: it is not a file; best.ckpt is used" in caplog.text
    write(last, 2)  # as the run goes on
    assert find_newest_checkpoint(tmp_path) == last


def test_a_folder_in_place_of_the_last_one_is_refused_as_nothing_could_be_written_there(tmp_path):
    best = write(tmp_path / "best.ckpt", 1)
    (tmp_path / "last.ckpt").mkdir()
    says = r"last.ckpt: it is a folder; move it away, and the newest whole one is used$"
    with pytest.raises(UserError, match=says):
        find_newest_checkpoint(tmp_path)
    (tmp_path / "last.ckpt").rename(tmp_path / "away")
    assert find_newest_checkpoint(tmp_path) == best
