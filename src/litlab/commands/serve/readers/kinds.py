"""Which reader is for which kind of model."""

from collections.abc import Callable, Mapping
from typing import Any

from litlab.commands.serve.readers.images import ImageReader
from litlab.commands.serve.readers.reader import Reader
from litlab.commands.serve.readers.rows import RowReader
from litlab.commands.serve.readers.series import SeriesReader
from litlab.commands.serve.readers.texts import TextReader
from litlab.errors import UserError

_READERS: dict[str, type[Reader]] = {
    "images": ImageReader, "texts": TextReader, "series": SeriesReader, "rows": RowReader,
}  # fmt: skip


def reader_of(manifest: Mapping[str, Any], text_file: Callable[[str], str]) -> Reader:
    """Return the reader for a model.

    Args:
        manifest: Its manifest.
        text_file: Returns the text of a file that belongs to it, by the file's name.

    Raises:
        UserError: There is none for its kind.
    """
    if (kind := manifest["kind"]) not in _READERS:
        raise UserError(f"serve: it takes models of {', '.join(_READERS)}, and this one is of {kind}")
    return _READERS[kind](manifest, text_file)
