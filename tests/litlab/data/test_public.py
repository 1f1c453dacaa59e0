"""Public files, from a file:// address in place of a server; and what takes their place."""

import hashlib

import pytest

from litlab.data import PublicFile
from litlab.data.public import Unavailable
from litlab.errors import UserError


@pytest.fixture
def offered(tmp_path):
    """A file that a server offers, and the folder to download it to."""
    (tmp_path / "server.csv").write_bytes(b"date,load\n")
    digest = hashlib.sha256(b"date,load\n").hexdigest()
    return PublicFile(f"file://{tmp_path}/server.csv", "sets/load.csv", f"sha256:{digest}"), tmp_path / "data"


def test_a_file_is_downloaded_once(offered, tmp_path):
    file, root = offered
    file.download(root)
    (tmp_path / "server.csv").unlink()
    file.download(root)
    assert (root / "sets/load.csv").read_bytes() == b"date,load\n"
    assert [path.name for path in (root / "sets").iterdir()] == ["load.csv"]


def test_what_is_damaged_is_not_taken(offered, tmp_path):
    file, root = offered
    (root / "sets").mkdir(parents=True)
    (root / "sets/load.csv").write_bytes(b"date")
    file.download(root)
    assert (root / "sets/load.csv").read_bytes() == b"date,load\n"
    (root / "sets/load.csv").write_bytes(b"date")
    (tmp_path / "server.csv").write_bytes(b"something else")
    with pytest.raises(
        UserError, match=r"load\.csv: it is not the public file \(checksum\); delete it, or replace it$"
    ):
        file.download(root)
    (root / "sets/load.csv").unlink()
    with pytest.raises(Unavailable, match=r"sent is not the file that was expected \(checksum\)"):
        file.download(root)
    assert list((root / "sets").iterdir()) == []
