import errno
import logging
import os
import shutil
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from litlab.data.cache import cache_lock, checksum, find_corruption, is_whole, new_cache, open_array, write_array

from litlab.data import cache
from litlab.errors import UserError

ARRAY = np.arange(60, dtype=np.uint8).reshape(5, 3, 2, 2)


def fill(folder, array=ARRAY):
    with new_cache(folder, array.nbytes) as staging:
        write_array(staging / "images.npy", array.shape[1:], [array[:2], array[2:]])
    return folder


def test_round_trip(tmp_path):
    folder = fill(tmp_path / "caches" / "pets-1")
    assert find_corruption(folder) is None
    np.testing.assert_array_equal(open_array(folder / "images.npy"), ARRAY)
    np.testing.assert_array_equal(np.load(folder / "images.npy"), ARRAY)
    assert [path.name for path in folder.parent.iterdir()] == ["pets-1"]


def test_an_opened_array_can_not_change_the_file(tmp_path):
    folder = fill(tmp_path / "pets")
    open_array(folder / "images.npy")[:] = 0
    assert find_corruption(folder) is None


def test_an_interrupted_cache_leaves_nothing(tmp_path):
    folder = tmp_path / "pets"
    with pytest.raises(KeyboardInterrupt), new_cache(folder, 100) as staging:  # noqa: PT012
        (staging / "images.npy").write_bytes(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_cache_is_not_there_before_it_is_whole(tmp_path):
    folder = tmp_path / "pets"
    with new_cache(folder, 100) as staging:
        (staging / "images.npy").write_bytes(b"half")
        assert not folder.exists()
        assert staging.parent == folder.parent  # on the same file system, so that renaming is one step
    assert folder.exists()


def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path):
    old, new = tmp_path / "pets.tmp-a", tmp_path / "pets.tmp-b"
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 100_000,) * 2)
    fill(tmp_path / "pets")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets", "pets.tmp-b"]


def test_the_first_of_two_processes_wins(tmp_path):
    """Whoever has seen a whole cache can open it: another one never takes its place."""
    folder = tmp_path / "pets"
    with new_cache(folder, 100) as staging:
        write_array(staging / "images.npy", ARRAY.shape[1:], [ARRAY])
        fill(folder, ARRAY + 1)  # another process, meanwhile
        before = folder.stat().st_ino
    assert folder.stat().st_ino == before
    np.testing.assert_array_equal(open_array(folder / "images.npy"), ARRAY + 1)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_damaged_cache_is_replaced(tmp_path):
    folder = fill(tmp_path / "pets", ARRAY + 1)
    opened = open_array(folder / "images.npy")
    (folder / "checksums.json").unlink()
    fill(folder)
    assert find_corruption(folder) is None
    np.testing.assert_array_equal(open_array(folder / "images.npy"), ARRAY)
    np.testing.assert_array_equal(opened, ARRAY + 1)  # what is open stays readable
    assert list(tmp_path.iterdir()) == [folder]


def test_one_at_a_time_fills_the_caches_while_others_wait(tmp_path):
    """In threads: each opens the lock itself, as a process does."""
    filled = []

    def prepare(number: int) -> None:
        with cache_lock(tmp_path):
            if not is_whole(tmp_path / "pets"):
                filled.append(number)
                time.sleep(0.2)
                fill(tmp_path / "pets")
            assert find_corruption(tmp_path / "pets") is None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(prepare, range(4)))
    assert len(filled) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "pets"]


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, caplog):
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(cache.fcntl, "flock", flock)
    with caplog.at_level(logging.INFO, "lightning.pytorch.utilities.rank_zero"), cache_lock(tmp_path):
        fill(tmp_path / "pets")
    assert "can't be locked (No locks available)" in caplog.text
    assert is_whole(tmp_path / "pets")


def test_caches_where_nobody_may_write(tmp_path):
    (tmp_path / "file").write_text("")
    line = r"the cache can't be written \(.*choose another folder with --data.cache_dir"
    with pytest.raises(UserError, match=line), cache_lock(tmp_path / "file" / "caches"):
        pass


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda path: path.unlink(), "images.npy is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "images.npy has 187 bytes instead of 188"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\xff"), "images.npy has changed"),
        (lambda path: (path.parent / "checksums.json").unlink(), "checksums.json is unreadable"),
        (lambda path: (path.parent / "checksums.json").write_text("{"), "checksums.json is unreadable"),
        (lambda path: shutil.rmtree(path.parent), "checksums.json is unreadable"),
    ],
)
def test_damage_is_found(tmp_path, spoil, fault):
    folder = fill(tmp_path / "pets")
    spoil(folder / "images.npy")
    assert find_corruption(folder).startswith(fault)
    if "changed" not in fault:
        assert find_corruption(folder, quick=True).startswith(fault)
    fill(folder)
    assert find_corruption(folder) is None


def test_checksum_of_a_large_file_reads_blocks_of_all_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_BLOCK", 16)
    monkeypatch.setattr(cache, "_CHECKED_BLOCKS", 4)
    path = tmp_path / "large"
    path.write_bytes(bytes(160))
    before = checksum(path)
    content = bytearray(160)
    content[150] = 1  # in block 9 of 10; every third is read: 0, 3, 6, 9
    path.write_bytes(content)
    assert checksum(path) != before


def test_too_few_bytes_free(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 2**29))
    with pytest.raises(UserError) as error, new_cache(tmp_path / "pets", 2**30):
        pass
    assert str(error.value) == (
        f"{tmp_path}: not enough space for the cache (1.00 GiB needed, 0.50 GiB free); "
        "make room or choose another folder with --data.cache_dir"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_disk_gets_full_on_the_way(tmp_path):
    with pytest.raises(UserError, match="not enough space for the cache") as error, new_cache(tmp_path / "pets", 1):
        raise OSError(28, "No space left on device")
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_the_place_is_not_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: the cache can't be written \(.*\); choose another folder with --data"):
        fill(tmp_path / "file" / "pets")


def test_blocks_of_another_kind(tmp_path):
    with pytest.raises(ValueError, match="a int64 block"):
        write_array(tmp_path / "images.npy", ARRAY.shape[1:], [ARRAY.astype(np.int64)])
