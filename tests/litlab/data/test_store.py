"""Folders of prepared data, which are whole or not there."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from litlab.data.store import fill_cache

ARRAY = np.arange(60, dtype=np.uint8).reshape(5, 3, 2, 2)


def fill(folder):
    np.save(folder / "images.npy", ARRAY)


def test_a_cache_is_not_there_before_it_is_whole(tmp_path):
    folder = tmp_path / "pets"

    def stop(staging):
        (staging / "images.npy").write_bytes(b"half")
        assert not folder.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill_cache(folder, stop)
    (tmp_path / ".pets-killed").mkdir()  # by a process that was killed
    (tmp_path / ".other-killed").mkdir()
    assert not folder.exists()
    fill_cache(folder, fill)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".other-killed", "pets"]
    fill_cache(folder, lambda _: pytest.fail("it is there"))


def test_one_at_a_time_fills_a_cache_while_others_wait(tmp_path):
    """In threads: each opens the lock itself, as a process does."""
    filled = []

    def slowly(staging):
        filled.append(staging)
        time.sleep(0.1)
        fill(staging)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: fill_cache(tmp_path / "pets", slowly), range(4)))
    assert len(filled) == 1
    np.testing.assert_array_equal(np.load(tmp_path / "pets/images.npy"), ARRAY)
