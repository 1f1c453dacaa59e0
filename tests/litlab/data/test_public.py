"""Downloads of public files and folders of prepared data: each is complete, or does not exist."""

import hashlib
import os
import time

import pytest

from litlab.data import PublicFile
from litlab.data.public import Unavailable
from litlab.data.store import fill_cache
from litlab.util.checksums import CHECKSUMS
from tests.litlab.data.conftest import refusal


def test_a_file_is_downloaded_once_and_what_is_damaged_is_neither_taken_nor_replaced(tmp_path):
    offered, file = tmp_path / "server.csv", tmp_path / "data/sets/load.csv"
    digest = hashlib.sha256(b"date,load\n").hexdigest()
    public = PublicFile(f"file://{offered}", "sets/load.csv", f"sha256:{digest}")

    def download(content: bytes) -> bytes:
        """What there is if a server offers this."""
        offered.write_bytes(content)
        public.download(tmp_path / "data")
        return file.read_bytes()

    assert download(b"date,load\n") == download(b"something else") == b"date,load\n"
    file.write_bytes(b"date")
    line = "load.csv: it is not the public file (checksum); delete it, or replace it"
    assert line in refusal(download, b"date,load\n")
    assert file.read_bytes() == b"date", "it may be the user's"
    file.unlink()
    with pytest.raises(Unavailable, match=r"sent is not the file that was expected \(checksum\)"):
        download(b"something else")
    assert not any(file.parent.iterdir())


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


def test_caches_that_no_run_has_used_for_long_are_removed(tmp_path):
    def use(name: str, days: int = 0) -> None:
        fill_cache(tmp_path / name, lambda staging: (staging / "rows").write_text(name))
        if days:
            then = time.time() - days * 86_400
            os.utime(tmp_path / name / CHECKSUMS, (then, then))

    kept = {"exported-model": 400, "old-0123456789ab": 58, "used-0123456789ab": 99}
    for name, days in kept.items():
        use(name, days)
    use("used-0123456789ab")  # today
    use("older-0123456789ab", 61)
    use("new")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "new", ".lock"}
