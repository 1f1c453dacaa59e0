"""Public files, from a file:// address in place of a server; and what takes their place."""

import hashlib

import pytest

from litlab.data import PublicFile
from litlab.data.public import Unavailable
from litlab.errors import UserError


def test_a_file_is_downloaded_once_and_what_is_damaged_is_not_taken(tmp_path):
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
    assert download(b"date,load\n") == b"date,load\n"
    file.write_bytes(b"date")
    with pytest.raises(
        UserError, match=r"load\.csv: it is not the public file \(checksum\); delete it, or replace it$"
    ):
        download(b"something else")
    file.unlink()
    with pytest.raises(Unavailable, match=r"sent is not the file that was expected \(checksum\)"):
        download(b"something else")
    assert not any(file.parent.iterdir())
