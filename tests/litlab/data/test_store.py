"""Folders of prepared data, which are whole or not there."""

import pytest

from litlab.data.store import fill_cache


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
    fill_cache(folder, lambda staging: (staging / "images.npy").write_bytes(b"whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".other-killed", "pets"]
    assert folder.stat().st_mode & 0o777 == 0o755  # it may be shared
    fill_cache(folder, lambda _: pytest.fail("it is there"))
