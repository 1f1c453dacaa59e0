"""Public files: fetched, checked, or a clear word on why they can't be had."""

import hashlib
import os
import socket
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from litlab.data.paths import check_folder
from litlab.errors import UserError
from litlab.util.progress import SlowProgress


class Unavailable(Exception):
    """The data set is neither here nor can it be downloaded; the message says why."""


@dataclass(frozen=True)
class PublicFile:
    """A file that a public server offers.

    Args:
        url: Its address.
        name: Its name here, relative to the folder of the public data.
        digest: Its checksum, such as ``sha256:0f3a...`` or ``md5:...``.
    """

    url: str
    name: str
    digest: str

    def is_intact(self, path: Path) -> bool:
        """Whether a file has the contents that are expected."""
        method, expected = self.digest.split(":")
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, method).hexdigest() == expected


def obtain_file(file: PublicFile, root: Path, seconds: float = 4.0) -> Path:
    """Make sure that a public file is there and whole, downloading it where it is not.

    Args:
        file: The file.
        root: Folder for it.
        seconds: How long to wait for an answer of the server.

    Returns:
        Where it is.

    Raises:
        Unavailable: It is not there and can't be downloaded.
        UserError: It is there, but is not the public file, and can't be downloaded anew.
    """
    path = root / file.name
    present = path.is_file()
    if present and file.is_intact(path):
        return path
    try:
        reach([file.url], seconds)
        _fetch(file, path)
    except Unavailable as error:
        if present:
            raise UserError(
                f"{path}: not the public file (its {file.digest.split(':')[0]} differs), and it can't be downloaded "
                f"({error}); delete it, replace it, or read it as your own with --data.dataset csv --data.path {path}"
            ) from error
        raise
    return path


def reach(urls: list[str], seconds: float) -> None:
    """Ask all servers at once; return as soon as one has the file.

    Args:
        urls: One address to try per server.
        seconds: How long to wait.

    Raises:
        Unavailable: None of them answers.
    """
    answered = threading.Event()
    pending = threading.Semaphore(0)
    reasons: list[str] = []

    def ask(url: str) -> None:
        host = url.split("/")[2]
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=seconds):
                answered.set()
        except (OSError, ValueError) as error:  # URLError and HTTPError are OSErrors
            reasons.append(f"{host}: {getattr(error, 'reason', None) or error}")
        pending.release()

    # Daemon threads, because looking up a name can hang for much longer than any timeout of the connection.
    for url in urls:
        threading.Thread(target=ask, args=(url,), daemon=True).start()
    for _ in urls:
        if not pending.acquire(timeout=seconds + 1) or answered.is_set():
            break
    if not answered.is_set():
        raise Unavailable(reasons[0] if reasons else f"{urls[0].split('/')[2]}: no answer in {seconds:.0f} s")


@contextmanager
def socket_timeout(seconds: float) -> Iterator[None]:
    """Make stalled connections fail that would otherwise wait for ever.

    Args:
        seconds: How long to wait for the next bytes.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _fetch(file: PublicFile, path: Path) -> None:
    """Download beside the target, check, then rename."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise UserError(f"data.path: nothing can be written into {path.parent} ({error.strerror})") from error
    staging = Path(name)
    with open(handle, "wb") as stream:
        try:
            with urllib.request.urlopen(file.url, timeout=30) as answer:
                size = int(answer.headers.get("Content-Length") or 0)
                with SlowProgress(size, f"downloading {path.name} (bytes)") as progress:
                    while block := answer.read(2**18):
                        stream.write(block)
                        progress.advance(len(block))
            stream.flush()
            os.fsync(stream.fileno())
            if not file.is_intact(staging):
                raise Unavailable(f"what {file.url.split('/')[2]} sent is not the file that was expected (checksum)")
            staging.chmod(0o644)  # temporary files are private
            os.replace(staging, path)
        except (OSError, ValueError) as error:
            raise Unavailable(f"{file.url.split('/')[2]}: {getattr(error, 'reason', None) or error}") from error
        finally:
            staging.unlink(missing_ok=True)


def ensure_or_fall_back(
    download: Callable[[], object], fallback: str | None, name: str, files: list[str], root: Path, own: str
) -> bool:
    """Make sure that the files of a public data set are there, or that generated data may take their place.

    Args:
        download: Makes sure of it; raises `Unavailable` where the files can't be had.
        fallback: "generated" where made-up data may take the place of the public data set.
        name: The data set.
        files: The files that it consists of.
        root: Folder for them.
        own: Flags that read the user's own data instead.

    Returns:
        Whether they are there; where not, the user has been told.

    Raises:
        UserError: They are not there, and there is no fallback; or the folder can't be one.
    """
    check_folder(root, name)
    try:
        download()
    except Unavailable as error:
        _fall_back_to_generated(fallback, name, files, root, own, error)
        return False
    return True


def _fall_back_to_generated(
    fallback: str | None, name: str, files: list[str], root: Path, own: str, reason: Unavailable
) -> None:
    """Tell the user, so that it can't be missed, that this run uses generated data; or stop, if it may not.

    Args:
        fallback: "generated" where made-up data may take the place of the public data set.
        name: The data set.
        files: The files that it consists of.
        root: Folder for them.
        own: Flags that read the user's own data instead.
        reason: Why they can't be had.

    Raises:
        UserError: There is no fallback.
    """
    if fallback is None:
        raise UserError(
            f"{name} is not in {root}/ and can't be downloaded ({reason}): put {' and '.join(files)} into {root}/, "
            f"or use your own data ({own}), or made-up data (--data.fallback generated)"
        ) from reason
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    text = Text.assemble(
        (f"{name} is not here and can't be downloaded", "bold"),
        f" ({reason}).\nThis run uses GENERATED data, as data.fallback says: its results say nothing about {name}."
        f"\nFor the real ones put {' and '.join(files)} into {root}/, or use your own: {own}",
    )
    Console(stderr=True).print(Panel(text, title="GENERATED DATA", border_style="bold yellow"))
