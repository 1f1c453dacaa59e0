"""Public data sets of texts; which ones there are, the DataModules that are named for them say."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from litlab.data.download import PublicFile, obtain_file

Splits = tuple[dict[str, list[str]], dict[str, list[int]]]


@dataclass(frozen=True)
class PublicTexts:
    """A public data set of texts.

    Args:
        name: Short name, part of the cache's.
        files: Its files.
        class_names: Name of each class, in the order of the labels.
        read: Reads the files in a folder; returns for "train" and "test" the texts, and the class of each.
    """

    name: str
    files: tuple[PublicFile, ...]
    class_names: tuple[str, ...]
    read: Callable[[Path], Splits]

    def ensure_downloaded(self, root: Path) -> None:
        """Make sure that the files are there and whole.

        Args:
            root: Folder for the files.

        Raises:
            Unavailable: They are not there and can't be downloaded.
            UserError: They are there, but damaged, and can't be downloaded again.
        """
        for file in self.files:
            obtain_file(file, root)
