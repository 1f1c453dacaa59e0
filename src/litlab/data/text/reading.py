"""Raw texts and their classes: from the user's files or a public set."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litlab.data.classes import sort_classes, warn_of_like_classes
from litlab.data.frames import FileFormat, Frame, Policy, Source, check_columns, check_file, drop_bad_rows, read_frame
from litlab.data.public import PublicFile
from litlab.errors import UserError

_REMEDY = "set data.text_columns and data.label_column, or name all with data.columns if row 1 is a text"


@dataclass(frozen=True)
class PublicTexts:
    """A public data set of texts.

    Args:
        name: Short name.
        files: Its files.
        class_names: Name of each class, in the order of the labels.
        read: Reads the files in a folder; returns a frame with columns ``text``, ``label`` (from 0) and ``split``.
    """

    name: str
    files: tuple[PublicFile, ...]
    class_names: tuple[str, ...]
    read: Callable[[Path], Frame]

    @property
    def file_names(self) -> list[str]:
        return [file.name for file in self.files]

    @property
    def urls(self) -> list[str]:
        return [file.url for file in self.files]

    def download(self, root: Path) -> None:
        for file in self.files:
            file.download(root)


def read_corpus(files: Sequence[Source], table: Mapping[str, Any]) -> tuple[list[str], Frame]:
    """Read the user's own texts.

    Args:
        files: The file or frame to train on, and perhaps one to test on.
        table: How they are to be read: arguments of `read_rows`.

    Returns:
        Names of the classes; and a frame with columns ``text``, ``label`` (from 0) and ``split``.

    Raises:
        UserError: As of `read_rows`; or there is only one class.
    """
    import pandas as pd

    parts = [
        read_rows(file, **table).assign(split=split) for split, file in zip(("train", "test"), files, strict=False)
    ]
    frame: Frame = pd.concat(parts)
    names = sort_classes(parts[0]["label"])
    if len(names) < 2:
        raise UserError(f"data.label_column: all texts have the class {names[0]!r}; name a column of two or more")
    unknown = set(frame["label"]) - set(names)
    if unknown:
        raise UserError(f"data.test_path: no training text has the class {min(unknown)!r}; correct the files")
    warn_of_like_classes(names, "data.label_column")
    return names, frame.assign(label=frame["label"].map(names.index))


def read_input(source: Source, table: Mapping[str, Any]) -> Any:
    """Read the texts to predict.

    Args:
        source: A .txt file with one text per line; else a table, which needs no labels.
        table: How a table is read: arguments of `read_rows`.

    Returns:
        A series of the texts; the index is the number of the row, or of the line.
    """
    import pandas as pd

    if not str(source).endswith(".txt"):
        return read_rows(source, **{**table, "label_column": None}, setting="--input")["text"]
    lines = check_file(str(source), "--input").read_text("utf-8-sig").split("\n")
    texts: Any = pd.Series(lines, range(1, len(lines) + 1)).str.strip()
    return texts[texts != ""]


def read_rows(
    source: Source,
    *,
    text_columns: list[str],
    label_column: str | None,
    columns: list[str] | None = None,
    delimiter: str | None = None,
    missing: Sequence[str] = (),
    bad_rows: Policy = "error",
    setting: str = "data.path",
) -> Frame:
    """Read a table of texts.

    Args:
        source: The file or frame.
        text_columns: Columns that make up the text, joined by a space.
        label_column: Column of the classes; None: they are not read, and can be missing.
        columns: Names of the columns, where a CSV file has no row of names.
        delimiter: As of `FileFormat`, and so is `missing`.
        missing: Words that stand for a missing value.
        bad_rows: Whether rows without a text or label are an error or left out.
        setting: Where the file's name comes from, for messages.

    Returns:
        A frame with columns ``text`` and, where labels are read, ``label``; the index is the number of the row.

    Raises:
        UserError: As of `read_frame`; a column is missing; or there are bad rows, and they may not be left out.
    """
    import pandas as pd

    where = setting if isinstance(source, pd.DataFrame) else source
    form = FileFormat(delimiter, missing=tuple(missing))
    frame = read_frame(source, form, setting=setting, names=columns, bad_rows=bad_rows)
    needed = text_columns if label_column is None else [*text_columns, label_column]
    check_columns(frame, where, dict.fromkeys(needed, _REMEDY))

    texts = frame[text_columns].astype("string").fillna("").agg(" ".join, axis=1).str.strip()
    rows: Frame = pd.DataFrame({"text": texts})
    problems: dict[Any, str] = {}
    if label_column is not None:
        rows["label"] = frame[label_column].convert_dtypes().astype("string")  # 1, not 1.0, beside missing ones
        problems |= dict.fromkeys(rows.index[rows["label"].isna()], f"no {label_column}")
    problems |= dict.fromkeys(rows.index[rows["text"] == ""], "no text")
    return drop_bad_rows(rows, problems, bad_rows, where)


def compute_digest(source: Source) -> str:
    """Return what changes whenever the contents of a file or frame do."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        content = source.to_csv().encode()
    else:
        content = check_file(str(source), "data.path").read_bytes()
    return hashlib.sha256(content).hexdigest()
