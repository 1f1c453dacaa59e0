"""Raw texts and their classes: from the user's files or a public set."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from litlab.data.files import Frame
from litlab.data.public import PublicFile


@dataclass(frozen=True)
class PublicTexts:
    """A public data set of texts.

    Args:
        name: Short name.
        files: Its files.
        class_names: Name of each class, in the order of the labels.
        read: Reads the files in a folder; returns a frame with columns ``text``, ``label`` (from 0)
            and ``split``.
    """

    name: str
    files: tuple[PublicFile, ...]
    class_names: tuple[str, ...]
    read: Callable[[Path], Frame]  # the files' own format, in the team's package

    # What a message asks to be put into the folder, where a download fails
    @property
    def file_names(self) -> list[str]:
        return [file.name for file in self.files]

    def download(self, root: Path) -> None:
        for file in self.files:
            file.download(root)
