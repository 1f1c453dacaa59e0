"""The user's own images: which files there are, of which class, in which split; as a CSV file lists them."""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litlab.data.bad_rows import BadRows, Policy, settle_and_tell
from litlab.data.labels import shortened
from litlab.data.text_file import EMPTY, column_place, read_records
from litlab.errors import UserError

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Listing:
    """Files and classes of a data set, nothing decoded yet.

    Args:
        root: Folder that the file names are relative to.
        class_names: Name of each class, in the order of the labels.
        files: For each split the file names, relative to `root`.
        labels: For each split the class of each file, int64 of shape (files,).
        dropped: Number of bad rows that were left out.
    """

    root: Path
    class_names: list[str]
    files: dict[str, list[str]]
    labels: dict[str, Tensor]
    dropped: int = 0

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the names, labels, sizes and dates of all files: it changes when any of them does."""
        digest = hashlib.sha256(repr((str(self.root), self.class_names)).encode())
        for split, names in self.files.items():
            digest.update(f"{split}\n".encode())
            for name, label in zip(names, self.labels[split].tolist(), strict=True):
                status = os.stat(self.root / name)
                digest.update(os.fsencode(name) + f"\0{label} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:16]


def in_order(names: set[str]) -> list[str]:
    """Sort class names; as numbers if all are, so that class 10 comes after class 9."""
    return sorted(names, key=lambda name: (int(name), name) if all(n.isdecimal() for n in names) else (0, name))


def list_csv(
    path: Path, file_column: str, label_column: str, split_column: str | None, bad_rows: Policy = "error"
) -> Listing:
    """List the images that a CSV file names, one a row; see `ImageData`. Its file names are relative to its folder.

    Raises:
        UserError: The file or a column is missing, or there are bad rows which may not be left out.
    """
    bad = BadRows(path, bad_rows)
    columns = {"file_column": file_column, "label_column": label_column}
    columns |= {"split_column": split_column} if split_column else {}
    rows: dict[str, list[tuple[int, str, str]]] = {split: [] for split in SPLITS}
    for line, file, label, *marked in _read_rows(path, columns, bad):
        split = marked[0] if marked else "train"
        if split not in SPLITS:
            bad.add(line, f"{split_column} is {shortened(split)}, not train, val or test")
        elif problem := no_file(path.parent / file):
            bad.add(line, f"{shortened(file)}: {problem}")
        else:
            rows[split].append((line, file, label))
    classes = in_order({label for _, _, label in rows["train"]})
    place = {name: i for i, name in enumerate(classes)}
    for split, members in rows.items():
        for line, _, label in members:
            if label not in place and classes:
                bad.add(line, f"class {shortened(label)} is in {split}, but not in train")
        rows[split] = [row for row in members if row[0] not in bad]
    settle_and_tell(bad, sum(map(len, rows.values())))
    if not classes:
        raise UserError(f"{path}: no row has {split_column} train; mark the training images")
    if len(classes) < 2:
        raise UserError(f"{path}: column {label_column} has only the class {classes[0]!r}; at least 2 are needed")
    files = {split: [file for _, file, _ in members] for split, members in rows.items() if members}
    labels = {
        split: torch.tensor([place[label] for _, _, label in members]) for split, members in rows.items() if members
    }
    return Listing(path.parent, classes, files, labels, len(bad))


def no_file(file: Path) -> str:
    """Why a path can't be read as a file; empty where it can."""
    try:
        mode = os.stat(file).st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"a broken link ({error.strerror})" if os.path.islink(file) else "no such file"
    except OSError as error:
        return f"a broken link ({error.strerror})" if os.path.islink(file) else f"unreadable ({error.strerror})"
    return "" if stat.S_ISREG(mode) else "a pipe, a device or a folder, not an image"


def _read_rows(path: Path, columns: dict[str, str], bad: BadRows) -> Iterator[tuple[Any, ...]]:
    """Yield the line of each good row, and its values in the columns (given by the names of the settings)."""
    records = read_records(path, "data.path", bad)
    header = [name.strip() for name in next(records, EMPTY).fields]
    places = [column_place(path, header, column, f"set --data.{setting} {{}}") for setting, column in columns.items()]
    empty = True
    for line, _, fields in records:
        empty = False
        values = [fields[place].strip() for place in places]
        if all(values):
            yield line, *values
        else:
            bad.add(line, f"{list(columns.values())[values.index('')]} is empty")
    if empty and not bad:
        raise UserError(f"{path}: no rows below the header; add one per image")
