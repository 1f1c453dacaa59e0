"""Where texts come from: the user's CSV files, a public data set, or the generator."""

import filecmp
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from litlab.data.bad_rows import Policy, settle
from litlab.data.download import PublicFile, obtain_file
from litlab.data.labels import in_order, label_notes, shortened
from litlab.data.text.generated import generated_class_names, generated_texts
from litlab.data.text.reading import Rows, read_rows
from litlab.data.text_file import check_file
from litlab.errors import UserError

_GENERATED = {"train": 4_000, "test": 1_000}


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

    def ensure_downloaded(self, root: Path) -> None:
        """Make sure that the files are in a folder, and whole; see `obtain_file`."""
        for file in self.files:
            obtain_file(file, root)


@dataclass(frozen=True)
class Corpus:
    """Raw texts.

    Args:
        class_names: Name of each class, in the order of the labels.
        texts: For "train", and "test" where there is one, the texts.
        labels: For each of them the class of each text, int64 of shape (texts,).
        dropped: For each of them the number of bad rows that were left out.
        notes: For each of them lines that the user should see: rows left out, odd labels.
    """

    class_names: list[str]
    texts: dict[str, list[str]]
    labels: dict[str, Tensor]
    dropped: dict[str, int] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where a corpus comes from.

    Args:
        name: Short name, part of the cache's.
        digest: Changes whenever the texts or labels do.
        has_test: Whether there is a test split already.
        class_names: Name of each class, None where the texts must be read to know.
        read: Reads the corpus.
    """

    name: str
    digest: str
    has_test: bool
    class_names: list[str] | None
    read: Callable[[], Corpus]


def csv_source(
    path: Path,
    test_path: Path | None,
    columns: list[str] | None,
    text_columns: list[str],
    label_column: str,
    bad_rows: Policy = "error",
) -> Source:
    """Describe the user's own texts, see `TextData`.

    Raises:
        UserError: A file is not there, or both are the same.
    """
    files = {"train": (path, "data.path")} | ({"test": (test_path, "data.test_path")} if test_path else {})
    marks: list[object] = [columns, text_columns, label_column] + [bad_rows] * (bad_rows != "error")
    for file, setting in files.values():
        check_file(file, setting)
        status = file.stat()
        marks += [str(file.resolve()), status.st_size, status.st_mtime_ns]
    if test_path:
        _check_different(path, test_path)

    def read() -> Corpus:
        rows = {
            split: read_rows(file, columns, text_columns, label_column, setting=setting, bad_rows=bad_rows)
            for split, (file, setting) in files.items()
        }
        rows["train"].leave_out(_alone(path, rows["train"], label_column))
        number = {name: i for i, name in enumerate(in_order(set(rows["train"].labels)))}
        if test_path and number:
            rows["test"].leave_out(_unknown(rows["test"], set(number), path))
        lines = settle(*((own.bad, len(own.texts)) for own in rows.values()))
        if len(number) < 2:
            only = shortened(rows["train"].labels[0])
            raise UserError(f"{path}: column {label_column} has only the class {only}; 2 are needed")
        notes = {split: [line] * bool(line) for split, line in zip(rows, lines, strict=True)}
        notes["train"] += [
            f"data.label_column: {note}" for note in label_notes(sum((own.written for own in rows.values()), Counter()))
        ]
        return Corpus(
            list(number),
            {split: own.texts for split, own in rows.items()},
            {split: torch.tensor([number[label] for label in own.labels]) for split, own in rows.items()},
            {split: len(own.bad) for split, own in rows.items()},
            notes,
        )

    stem = path.name.removesuffix(".gz").removesuffix(".csv")[:60]  # part of a file name
    return Source(stem, hashlib.sha256(repr(marks).encode()).hexdigest(), test_path is not None, None, read)


def public_source(public: PublicTexts, root: Path) -> Source:
    """Describe a public data set. Its contents are known by checksum, so the cache is good without the files."""
    class_names = list(public.class_names)

    def read() -> Corpus:
        texts, labels = public.read(root)
        return Corpus(class_names, texts, {split: torch.tensor(own) for split, own in labels.items()})

    return Source(public.name, " ".join(file.digest for file in public.files), True, class_names, read)


def generated_source(num_classes: int) -> Source:
    """Describe generated texts of 2 or 4 classes."""
    class_names = generated_class_names(num_classes)

    def read() -> Corpus:
        made = {
            split: generated_texts(count, num_classes, seed) for seed, (split, count) in enumerate(_GENERATED.items())
        }
        texts = {split: texts for split, (texts, _) in made.items()}
        return Corpus(class_names, texts, {split: torch.tensor(labels) for split, (_, labels) in made.items()})

    return Source("generated-texts", f"{num_classes} {_GENERATED}", True, class_names, read)


def _check_different(path: Path, test_path: Path) -> None:
    """Refuse to test on the file that is trained on, or on a copy of it."""
    try:
        same = path.samefile(test_path)
        copy = same or (path.stat().st_size == test_path.stat().st_size and filecmp.cmp(path, test_path, shallow=False))
    except OSError:
        return  # reading them tells what is wrong
    if copy:
        what = "the same file as" if same else "a copy of"
        raise UserError(
            f"data.test_path: {test_path} is {what} data.path ({path}), so the test would be on the training "
            f"texts; give another file, or leave it out to set data.test_fraction aside"
        )


def _alone(path: Path, rows: Rows, label_column: str) -> dict[int, str]:
    """Return the rows that are the only ones of their class, by their lines."""
    counts = Counter(rows.labels)
    if len(counts) > 2 and max(counts.values()) == 1:
        raise UserError(
            f"{path}: column {label_column} has another value in each of {len(counts):,} rows, so it can't be the "
            f"class; name the right one with --data.label_column"
        )
    return {
        line: f"the only one of class {shortened(label)}, which can't be split into training and evaluation"
        for line, label in zip(rows.lines, rows.labels, strict=True)
        if counts[label] == 1 and len(counts) > 1
    }


def _unknown(rows: Rows, known: set[str], path: Path) -> dict[int, str]:
    """Return the rows of classes that are not known, by their lines."""
    return {
        line: f"class {shortened(label)} is not in {path}"
        for line, label in zip(rows.lines, rows.labels, strict=True)
        if label not in known
    }
