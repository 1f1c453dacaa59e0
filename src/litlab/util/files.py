"""Files that are whole whenever the machine stops and replace nothing else; downloads that end."""

import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from litlab.errors import UserError

TEMPORARY = ".tmp"  # how the names of files end that are being written


@contextmanager
def stage_file(path: Path) -> Iterator[Path]:
    """Give another name to what writes a file; then sync and rename it: readers see the whole old
    file or the whole new one.

    Raises:
        OSError: If it can't be written, as with a full disk; the old content stays.
    """
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}{TEMPORARY}")
    try:
        yield temporary
        sync(temporary)
        temporary.replace(path)  # of a link the link
        sync(path.parent)  # the new name is kept only once the folder is, too
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Make sure that a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str | bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new. Its folder is made.

    Raises:
        UserError: If it can't be written, as with a full disk.
    """
    content = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with stage_file(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UserError(
            f"{path}: it can't be written ({error.strerror}); make room, or make it writable"
        ) from error


# What is written for people (predictions, pages, exports, pictures, tables) replaces only what was
# written before, as it was written: `.NAME.sha256` beside it, or `.sha256` in a folder, says what
# that was.


def check_replaceable(path: Path, root: Path | None = None) -> None:
    """Refuse to write where something is that was not written here, or was changed since.

    Call it before anything is computed that is to go there. A link is never followed: it is
    something else. So is a folder or a pipe in the place of a file.

    Args:
        path: The file or folder to write. It need not exist yet, and neither need its folder.
        root: A folder that may be somebody else's, such as that of a run; no link in it may lead
            out of it.

    Raises:
        UserError: If there is something else, or the folder can't be written to.
    """
    nearest = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    is_open = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    is_open = is_open and nearest.stat().st_mode & 0o222  # root has access to all
    is_inside = root is None or path.parent.resolve().is_relative_to(root.resolve())
    if not (is_open and is_inside):
        raise UserError(
            f"{path}: {nearest} is not a folder that you can write to; choose another place"
        )

    digests = _file_of_digests(path)
    is_known = digests.is_file() and not path.is_symlink()
    is_unchanged = is_known and digests.read_bytes() == list_digests(path)
    if os.path.lexists(path) and not is_unchanged:
        raise UserError(
            f"{path}: something else is there, or it has been changed since it was written; move "
            "it away"
        )


def write_output(path: Path, text: str | bytes) -> None:
    """Write a file as `write_text` does, but in place of nothing else: see `check_replaceable`."""
    check_replaceable(path)
    write_text(path, text)
    record_digests(path)


@contextmanager
def stage_output(path: Path) -> Iterator[Path]:
    """Give another name to what writes a file by its name, and do the rest as `write_output`."""
    check_replaceable(path)
    with stage_file(path) as temporary:
        yield temporary
    record_digests(path)


def record_digests(path: Path) -> None:
    """Note what was written, a file or a folder: what is still so is replaced the next time."""
    write_text(_file_of_digests(path), list_digests(path))


def list_digests(path: Path) -> bytes:
    """Return what ``sha256sum`` prints of a file, or of all in a folder; ``-`` for what is none."""
    record = _file_of_digests(path)
    files = sorted(path.rglob("*")) if record.parent == path else [path]
    lines: list[bytes] = []
    for file in files:
        digest = "-"
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if file != record:
            lines.append(os.fsencode(f"{digest}  {file.relative_to(record.parent)}\n"))
    return b"".join(lines)


def _file_of_digests(path: Path) -> Path:
    """Return where digests are: beside a file, in a folder, with which they are copied."""
    is_folder = path.is_dir() and not path.is_symlink()
    return path / ".sha256" if is_folder else path.with_name(f".{path.name}.sha256")


@contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Make downloads fail that would otherwise wait for ever for the next bytes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
