"""Raw texts and their classes: from the user's files or a public set."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litlab.data.frames import (
    FileFormat,
    Frame,
    Source,
    check_columns,
    check_file,
    drop_bad_rows,
    read_frame,
)
from litlab.data.public import PublicFile
from litlab.util.classes import sort_classes

_REMEDY = (
    "set data.text_columns and data.label_column, or name all with data.columns if row 1 is a text"
)


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
    read: Callable[[Path], Frame]

    @property
    def file_names(self) -> list[str]:
        return [file.name for file in self.files]

    def download(self, root: Path) -> None:
        for file in self.files:
            file.download(root)


def read_corpus(files: Mapping[str, Source], table: Mapping[str, Any]) -> tuple[list[str], Frame]:
    """Read the user's own texts.

    Args:
        files: The file or frame to train on, under "train", and perhaps one to test on, under
            "test".
        table: As of `read_rows`.

    Returns:
        Names of the classes; and a frame with columns ``text``, ``label`` (from 0) and ``split``.

    Raises:
        UserError: As of `read_rows`.
    """
    import pandas as pd

    frame: Frame = pd.concat(
        [read_rows(file, table).assign(split=split) for split, file in files.items()]
    )
    names = sort_classes(frame["label"])
    return names, frame.assign(label=frame["label"].map(names.index))


def read_input(source: str, table: Mapping[str, Any]) -> dict[int, str]:
    """Read the texts to predict.

    Args:
        source: A .txt file with one text per line; else a table, which needs no labels.
        table: As of `read_rows`.

    Returns:
        The texts by the numbers of their rows or lines.
    """
    if not source.endswith(".txt"):
        return read_rows(source, {**table, "label_column": None}, "--input")["text"].to_dict()
    lines = check_file(source, "--input").read_text("utf-8-sig").split("\n")
    return {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}


def read_rows(source: Source, table: Mapping[str, Any], setting: str = "data.path") -> Frame:
    """Read a table of texts.

    Args:
        source: The file or frame.
        table: Settings of `TextData` by their names: columns, text_columns, label_column (None:
            labels are not read, and can be missing), delimiter and bad_rows.
        setting: Where the file's name comes from, for messages.

    Returns:
        A frame with columns ``text`` and, where labels are read, ``label``; the index is the number
        of the row.

    Raises:
        UserError: As of `read_frame`; a column is missing; or there are bad rows, and they may not
            be left out.
    """
    import pandas as pd

    where = setting if isinstance(source, pd.DataFrame) else source
    form, names, policy = FileFormat(table["delimiter"]), table["columns"], table["bad_rows"]
    texts, label = table["text_columns"], table["label_column"]
    frame = read_frame(source, form, setting=setting, names=names, bad_rows=policy)
    check_columns(frame, where, dict.fromkeys([*texts, label] if label else texts, _REMEDY))

    text = frame[texts].astype("string").fillna("").agg(" ".join, axis=1).str.strip()
    rows: Frame = pd.DataFrame({"text": text.mask(text == "")})
    if label:
        # 1, not 1.0, beside missing ones
        rows["label"] = frame[label].convert_dtypes().astype("string")
    problems: dict[Any, str] = {}
    for name, column in rows.items():
        problems |= dict.fromkeys(rows.index[column.isna()], f"no {name}")
    return drop_bad_rows(rows, problems, policy, where)


def compute_digest(source: str | Path | Frame) -> str:
    """Return what changes whenever the contents of a file or frame do."""
    is_file = isinstance(source, str | Path)
    content = check_file(source, "data.path").read_bytes() if is_file else source.to_csv().encode()
    return hashlib.sha256(content).hexdigest()
