"""Public data sets: fetched, checked, or replaced by made-up data that says so."""

import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litlab.errors import UserError
from litlab.util.files import socket_timeout


class Unavailable(Exception):
    """The data set is not here and can't be downloaded; the message says why."""


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
        """Return whether a file is there and has the contents that are expected."""
        if not path.is_file():
            return False
        method, expected = self.digest.split(":")
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, method).hexdigest() == expected

    def download(self, root: Path) -> None:
        """Make sure that the file is in a folder, and whole.

        Raises:
            Unavailable: It can't be downloaded.
            UserError: Another file has its name.
        """
        from torch.hub import download_url_to_file

        # Whether a name is taken, even by a broken link, is asked before its contents are read: a
        # file that another process puts there in between is intact, not somebody's own
        path = root / self.name
        is_there = os.path.lexists(path)
        if self.is_intact(path):
            return
        if is_there:
            raise UserError(
                f"{path}: it is not the public file (checksum); delete it, or replace it"
            )

        # In a folder beside it, so that the file appears whole, by a name that is on the same disk
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                socket_timeout(10),  # `urlopen` of torch.hub waits for ever otherwise
                tempfile.TemporaryDirectory(prefix=".download-", dir=path.parent) as folder,
            ):
                staged = Path(folder) / path.name
                download_url_to_file(self.url, str(staged), progress=sys.stderr.isatty())
                if not self.is_intact(staged):
                    raise Unavailable(
                        f"what {self.url} sent is not the file that was expected (checksum)"
                    )
                staged.replace(path)
        except OSError as error:
            raise Unavailable(str(error)) from error


def obtain(public: Any, root: Path, fallback: str | None, own_flags: str) -> bool:
    """Make sure that a public data set is there, or tell that made-up data takes its place.

    Args:
        public: The data set, with its ``name``, ``file_names`` and a method ``download(root)``.
        root: Folder for its files.
        fallback: "generated" where made-up data may take its place.
        own_flags: Flags that read the user's own data instead.

    Returns:
        Whether it is there.

    Raises:
        UserError: It is not there, and there is no fallback.
    """
    from rich.console import Console
    from rich.panel import Panel
    from rich.text import Text

    # An OSError is that of a folder that can't be written to
    try:
        public.download(root)
        return True
    except (Unavailable, OSError) as reason:
        files = " and ".join(public.file_names)
        if fallback is None:
            raise UserError(
                f"{public.name}: it is not in {root}{os.sep} and can't be downloaded ({reason}); "
                f"put {files} there, use your own data ({own_flags}), or made-up data "
                "(--data.fallback generated)"
            ) from reason

        # Nobody is to take results of made-up data for those of the public set
        notice = (
            f"{public.name} is not here and can't be downloaded ({reason}).\nThis run uses "
            "GENERATED data, as data.fallback says: its results say nothing about "
            f"{public.name}.\nFor the real ones put {files} into {root}{os.sep}, or use your own: "
            f"{own_flags}"
        )
        panel = Panel(Text(notice), title="GENERATED DATA", border_style="bold red")
        Console(stderr=True).print(panel)
        return False
