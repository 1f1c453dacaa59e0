import pytest

from litlab.util.files import write_atomically


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "status.json"
    write_atomically(path, lambda stream: stream.write(b"old"))

    def fail(stream):
        stream.write(b"half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    write_atomically(path, lambda stream: stream.write(b"new"))
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]
