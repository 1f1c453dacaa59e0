"""The paths that users name: what can't be one, or is not a file or folder, is refused before it is opened."""

import errno
import os
import stat
import unicodedata
from pathlib import Path

from litlab.errors import UserError

_KINDS = {
    stat.S_IFDIR: "a folder; give a file",
    stat.S_IFIFO: "a pipe; save what comes out of it to a file and give that",
    stat.S_IFSOCK: "a socket; give a file",
}


def user_path(text: str, setting: str) -> Path:
    """Read a path that the user has written; ``~`` stands for the home directory.

    Args:
        text: The path.
        setting: Where it comes from, such as ``data.path``.

    Raises:
        UserError: No file could have such a name, or it has control characters or bytes that are not UTF-8.
    """
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise UserError(f"{setting}: the name {text!a} contains characters that are not text; rename the file")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise UserError(f"{setting}: {text}: there is no such home directory; write the whole path") from error
    try:
        path.stat()
    except OSError as error:  # the others depend on what it is used for
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"{setting}: {text} can't be used ({error.strerror})") from error
    return path


def check_file(path: Path, setting: str) -> None:
    """Make sure that a path is a regular file, which opening a pipe or device would never tell; or say what it is.

    Args:
        path: The path.
        setting: Where it comes from, such as ``data.path``.

    Raises:
        UserError: It is no regular file, is not there, or can't be looked at.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise UserError(f"{setting}: {path} is a link to {os.readlink(path)}, which is not there") from error
        raise UserError(f"{setting}: there is no file {path}") from error
    except OSError as error:
        raise UserError(f"{setting}: {path} can't be read ({error.strerror})") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{setting}: {path} is {_KINDS.get(stat.S_IFMT(mode), 'a device; give a file')}")
