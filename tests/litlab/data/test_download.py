"""Public files, from a file:// address in place of a server."""

import hashlib
import sys

import pytest
from litlab.data.download import Unavailable, obtain_file

from litlab.data import PublicFile
from litlab.errors import UserError


@pytest.fixture
def offered(tmp_path):
    """A file that a server offers, and the folder to download it to."""
    (tmp_path / "server.csv").write_bytes(b"date,load\n")
    digest = hashlib.sha256(b"date,load\n").hexdigest()
    return PublicFile(f"file://{tmp_path}/server.csv", "sets/load.csv", f"sha256:{digest}"), tmp_path / "data"


def test_a_file_is_downloaded_once(offered, tmp_path):
    file, root = offered
    obtain_file(file, root)
    (tmp_path / "server.csv").unlink()
    obtain_file(file, root)
    assert (root / "sets" / "load.csv").read_bytes() == b"date,load\n"
    assert [path.name for path in (root / "sets").iterdir()] == ["load.csv"]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_of_a_download_is_for_terminals(offered, capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    obtain_file(*offered)
    assert ("100%" in capsys.readouterr().err) == terminal


def test_a_file_that_has_changed_on_the_server_is_not_kept(offered, tmp_path):
    file, root = offered
    (tmp_path / "server.csv").write_bytes(b"something else")
    with pytest.raises(Unavailable, match=r"sent is not the file that was expected \(checksum\)"):
        obtain_file(file, root)
    assert list((root / "sets").iterdir()) == []


def test_a_damaged_file_is_downloaded_anew(offered):
    file, root = offered
    (root / "sets").mkdir(parents=True)
    (root / "sets" / "load.csv").write_bytes(b"date")
    obtain_file(file, root)
    assert (root / "sets" / "load.csv").read_bytes() == b"date,load\n"


def test_a_folder_that_can_not_be_written_is_named(offered):
    file, root = offered
    root.write_text("")
    with pytest.raises(UserError, match=r"^data\.path: nothing can be written into .*/data/sets \("):
        obtain_file(file, root)
