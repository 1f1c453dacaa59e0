"""Public files: fetched, checked, or a clear word on why they can't be had."""

import hashlib
import os
import queue
import sys
import tempfile
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch.hub

from litlab.errors import UserError
from litlab.util.files import socket_timeout


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

    @property
    def host(self) -> str:
        """The server."""
        return self.url.split("/")[2]

    def is_intact(self, path: Path) -> bool:
        """Whether a file has the contents that are expected."""
        method, expected = self.digest.split(":")
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, method).hexdigest() == expected


def obtain_file(file: PublicFile, root: Path, seconds: float = 4.0) -> None:
    """Make sure that a public file is in a folder and whole, downloading it where it is not.

    Args:
        file: The file.
        root: The folder.
        seconds: How long to wait for an answer of the server.

    Raises:
        Unavailable: It is not there and can't be downloaded.
        UserError: It is there, but is not the public file, and can't be downloaded anew.
    """
    path = root / file.name
    present = path.is_file()
    if present and file.is_intact(path):
        return
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


def reach(urls: list[str], seconds: float) -> None:
    """Ask all servers at once, by an address for each; return as soon as one has the file.

    Raises:
        Unavailable: None of them answers in so many seconds.
    """
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask(url: str) -> None:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=seconds):
                answers.put(None)
        except (OSError, ValueError) as error:  # URLError and HTTPError are OSErrors
            answers.put(_why(url.split("/")[2], error))

    # Daemon threads, because looking up a name can hang for much longer than any timeout of the connection.
    for url in urls:
        threading.Thread(target=ask, args=(url,), daemon=True).start()
    reasons = []
    for url in urls:
        try:
            reason = answers.get(timeout=seconds + 1)
        except queue.Empty:
            reason = f"{url.split('/')[2]}: no answer in {seconds:.0f} s"
        if reason is None:
            return
        reasons.append(reason)
    raise Unavailable(reasons[0])


def _why(host: str, error: Exception) -> str:
    return f"{host}: {getattr(error, 'reason', None) or error}"


def _fetch(file: PublicFile, path: Path) -> None:
    """Download beside the target, check, then rename."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".download-", dir=path.parent)
    except OSError as error:
        raise UserError(f"data.path: nothing can be written into {path.parent} ({error.strerror})") from error
    with folder as staging:
        staged = Path(staging) / path.name
        try:
            with socket_timeout(30):
                # No bar in log files, which would get all of its states.
                torch.hub.download_url_to_file(file.url, str(staged), progress=sys.stderr.isatty())
            if not file.is_intact(staged):
                raise Unavailable(f"what {file.host} sent is not the file that was expected (checksum)")
            os.replace(staged, path)
        except (OSError, ValueError) as error:
            raise Unavailable(_why(file.host, error)) from error


class PublicData(Protocol):
    """A public data set of any kind."""

    @property
    def name(self) -> str:
        """Short name, part of the cache's."""
        ...

    @property
    def file_names(self) -> list[str]:
        """The files that it consists of, relative to the folder of the public data."""
        ...

    def ensure_downloaded(self, root: Path) -> None:
        """Make sure that the files are in a folder, and whole; raises `Unavailable` where they can't be had."""


def obtain(public: PublicData, root: Path, fallback: str | None, own: str) -> None:
    """Make sure that a public data set is there, or say what to do.

    Args:
        public: The data set.
        root: Folder for its files.
        fallback: "generated" where made-up data may take its place.
        own: Flags that read the user's own data instead.

    Raises:
        Unavailable: The files are not there, but made-up data may take their place.
        UserError: They are not there, and there is no fallback; or the folder can't be one.
    """
    place = next(place for place in (root, *root.parents) if os.path.lexists(place))
    if not os.path.isdir(place):
        raise UserError(
            f"data.path: {place} is not a folder; name the one that {public.name} is in, or is to be put in, or read "
            f"your own data ({own})"
        )
    try:
        public.ensure_downloaded(root)
    except Unavailable as reason:
        if fallback is not None:
            raise
        files = " and ".join(public.file_names)
        raise UserError(
            f"{public.name} is not in {root}/ and can't be downloaded ({reason}): put {files} into {root}/, or use "
            f"your own data ({own}), or made-up data (--data.fallback generated)"
        ) from reason


def tell_of_stand_in(public: PublicData, root: Path, own: str, reason: Unavailable, again: bool) -> None:
    """Tell the user that generated data takes the place of a public data set.

    Args:
        public: The data set.
        root: Folder for its files.
        own: Flags that read the user's own data instead.
        reason: Why it is not here.
        again: Whether it is there already: who made it saw a panel that can't be missed, and now a line will do.
    """
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    name, console = public.name, Console(stderr=True)
    if again:
        text = f"GENERATED DATA again, as {name} can't be downloaded ({reason}): the results say nothing about {name}."
        console.print(Text(text, "bold yellow"), soft_wrap=True)
        return
    text = Text.assemble(
        (f"{name} is not here and can't be downloaded", "bold"),
        f" ({reason}).\nThis run uses GENERATED data, as data.fallback says: its results say nothing about {name}."
        f"\nFor the real ones put {' and '.join(public.file_names)} into {root}/, or use your own: {own}",
    )
    console.print(Panel(text, title="GENERATED DATA", border_style="bold yellow"))
