"""Raw texts and their classes: from the user's files or a public set."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from litlab.data.classes import sort_classes
from litlab.data.frames import FileFormat, Policy, Source, check_columns, check_file, drop_bad_rows, read_frame
from litlab.data.public import PublicFile
from litlab.errors import UserError

FILES = ("data.path", "data.test_path")


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
    read: Callable[[Path], tuple[dict[str, list[str]], dict[str, list[int]]]]

    @property
    def file_names(self) -> list[str]:
        """Their names, relative to the folder of the public data."""
        return [file.name for file in self.files]

    @property
    def urls(self) -> list[str]:
        """Their addresses."""
        return [file.url for file in self.files]

    def download(self, root: Path) -> None:
        """Make sure that the files are in a folder, and whole; see `PublicFile.download`."""
        for file in self.files:
            file.download(root)


class Corpus(NamedTuple):
    """Raw texts.

    Args:
        class_names: Name of each class, in the order of the labels.
        texts: The texts of "train", and of "test" where there is one.
        labels: The class of each of them.
    """

    class_names: list[str]
    texts: dict[str, list[str]]
    labels: dict[str, list[int]]


def read_corpus(files: Sequence[Source], table: Mapping[str, Any]) -> Corpus:
    """Read the user's own texts.

    Args:
        files: The file or frame to train on, and perhaps one to test on.
        table: How they are to be read: arguments of `read_rows`.

    Raises:
        UserError: As of `read_rows`; or there is only one class.
    """
    names: list[str] = []
    corpus = Corpus(names, {}, {})
    for split, setting, file in zip(("train", "test"), FILES, files, strict=False):
        rows = read_rows(file, **table, setting=setting, classes=names)
        names.extend([] if names else sort_classes(rows["label"]))
        corpus.texts[split] = rows["text"].tolist()
        corpus.labels[split] = [names.index(label) for label in rows["label"]]
    if len(names) < 2:
        raise UserError(f"data.label_column: all texts have the class {names[0]!r}; name a column of two or more")
    return corpus


def read_texts(
    path: Path, columns: list[str], text_columns: list[str], label_column: str
) -> tuple[list[str], list[str]]:
    """Read a CSV file of a public data set, without a row of names, in which every row is good.

    Returns:
        The texts, their columns joined by a space, and their labels.
    """
    rows = read_rows(path, text_columns=text_columns, label_column=label_column, columns=columns)
    return rows["text"].tolist(), rows["label"].tolist()


def read_input(source: Source, table: Mapping[str, Any]) -> Any:
    """Read the texts to predict.

    Args:
        source: A .txt file with one text per line; else a table, whose row of names counts where it has one.
        table: How a table is read: arguments of `read_rows`.

    Returns:
        A series of the texts; the index is the number of the row, or of the line.
    """
    import pandas as pd

    options = dict(table, label_column=None, setting="--input")
    if str(source).endswith(".txt"):
        try:
            lines = check_file(str(source), "--input").read_text("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{source}: it is not UTF-8; save it as UTF-8") from error
        texts: Any = pd.Series(lines, range(1, len(lines) + 1)).str.strip()
        return texts[texts != ""]
    if table["columns"] is not None:
        try:
            return read_rows(source, **dict(options, columns=None))["text"]
        except UserError:
            pass  # there is no row of names
    return read_rows(source, **options)["text"]


def read_rows(
    source: Source,
    *,
    text_columns: list[str],
    label_column: str | None = None,
    columns: list[str] | None = None,
    delimiter: str | None = None,
    missing: Sequence[str] = (),
    bad_rows: Policy = "error",
    setting: str = "data.path",
    classes: list[str] | None = None,
) -> Any:
    """Read a table of texts.

    Args:
        source: The file or frame.
        text_columns: Columns that make up the text, joined by a space.
        label_column: Column of the classes; None: they are not read, and can be missing.
        columns: Names of the columns, where a CSV file has no row of names.
        delimiter: What separates the cells of a CSV file; None: it is found.
        missing: Words that stand for a missing text or label, beside those of pandas.
        bad_rows: Whether rows without a text or label are an error or left out.
        setting: Where the file's name comes from, for messages.
        classes: The classes that labels may have; none: all of which there are two texts.

    Returns:
        A frame with columns ``text`` and, where labels are read, ``label``; the index is the number of the row.

    Raises:
        UserError: As of `read_frame`; a column is missing; or there are bad rows, and they may not be left out.
    """
    import pandas as pd

    where = setting if isinstance(source, pd.DataFrame) else source
    form = FileFormat(delimiter, missing=tuple(missing))
    frame: Any = read_frame(source, form, setting=setting, names=columns, bad_rows=bad_rows)
    remedy = "or name all columns with --data.columns if row 1 is a text"
    check_columns(frame, where, dict.fromkeys(text_columns, f"set --data.text_columns '[NAME]', {remedy}"))
    texts: Any = pd.Series("", index=frame.index)
    for name in text_columns:
        texts = texts + " " + frame[name].astype("string").fillna("")
    rows: Any = pd.DataFrame({"text": texts.str.strip()})
    problems = dict.fromkeys(rows.index[rows["text"] == ""], "no text")

    if label_column is not None:
        check_columns(frame, where, {label_column: f"set --data.label_column NAME, {remedy}"})
        rows["label"] = frame[label_column].convert_dtypes().astype("string")  # 1, not 1.0, beside missing ones
        problems |= dict.fromkeys(rows.index[rows["label"].isna()], f"no {label_column}")
        labels = rows["label"].drop(list(problems))
        is_odd = ~labels.isin(classes) if classes else labels.map(labels.value_counts()) == 1
        reason = "not in the training texts" if classes else "in no other row"
        problems |= {row: f"class {label!r} is {reason}" for row, label in labels[is_odd].items()}
    return drop_bad_rows(rows, problems, bad_rows, where)


def compute_digest(source: Source, setting: str) -> str:
    """Return what changes whenever the contents of a file or frame do."""
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        return hashlib.sha256(source.to_csv().encode()).hexdigest()
    with check_file(str(source), setting).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
