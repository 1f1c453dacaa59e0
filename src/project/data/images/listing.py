"""The user's own images: which files there are, of which class, in which split; as a CSV file lists them."""

import csv
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from project.errors import UserError

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Listing:
    """Files and classes of a data set, nothing decoded yet.

    Args:
        root: Folder that the file names are relative to.
        class_names: Name of each class, in the order of the labels.
        files: For each split the file names, relative to `root`.
        labels: For each split the class of each file, int64 of shape (files,).
    """

    root: Path
    class_names: list[str]
    files: dict[str, list[str]]
    labels: dict[str, Tensor]

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
    """Sort class names; as numbers if all are, so that class 10 comes after class 9.

    Args:
        names: The names.
    """
    return sorted(names, key=lambda name: (int(name), name) if all(n.isdecimal() for n in names) else (0, name))


def list_csv(path: Path, file_column: str, label_column: str, split_column: str | None) -> Listing:
    """List the images that a CSV file names, one a row.

    Args:
        path: The CSV file, UTF-8, with a header; file names are relative to its folder.
        file_column: Column of the file names.
        label_column: Column of the class names.
        split_column: Column that says train, val or test; None: the images are still to be split.

    Raises:
        UserError: The file, a column, a label or an image is missing, or a row says nonsense.
    """
    columns = [file_column, label_column] + ([split_column] if split_column else [])
    rows = _read_rows(path, columns, dict(zip(columns, ("file_column", "label_column", "split_column"), strict=False)))
    missing = [(line, row[file_column]) for line, row in rows if not (path.parent / row[file_column]).is_file()]
    if missing:
        line, name = missing[0]
        others = f" (and {len(missing) - 1} more rows)" if len(missing) > 1 else ""
        raise UserError(f"{path}, row {line}{others}: there is no file {path.parent / name}; correct or delete the row")
    groups: dict[str, list[tuple[int, dict[str, str]]]] = {split: [] for split in SPLITS}
    for line, row in rows:
        split = row[split_column] if split_column else "train"
        if split not in SPLITS:
            raise UserError(f"{path}, row {line}: {split_column} is {split!r}; it must be train, val or test")
        groups[split].append((line, row))
    if not groups["train"]:
        raise UserError(f"{path}: no row has {split_column} train; mark the images to learn from")
    classes = in_order({row[label_column] for _, row in groups["train"]})
    if len(classes) < 2:
        raise UserError(f"{path}: column {label_column} has only the class {classes[0]!r}; at least 2 are needed")
    number = {name: i for i, name in enumerate(classes)}
    for split, members in groups.items():
        for line, row in members:
            if row[label_column] not in number:
                raise UserError(
                    f"{path}, row {line}: class {row[label_column]!r} is in {split}, but not in train; "
                    f"add such images to train or delete the row"
                )
    files = {split: [row[file_column] for _, row in members] for split, members in groups.items() if members}
    labels = {
        split: torch.tensor([number[row[label_column]] for _, row in members])
        for split, members in groups.items()
        if members
    }
    return Listing(path.parent, classes, files, labels)


def _read_rows(path: Path, columns: list[str], options: dict[str, str]) -> list[tuple[int, dict[str, str]]]:
    """Read (line number, the columns asked for) from a CSV file; none of them is empty."""
    if not path.is_file():
        raise UserError(f"data.path: there is no CSV file {path}")
    rows: list[tuple[int, dict[str, str]]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, strict=True)
            header = reader.fieldnames or []
            for column in columns:
                if column not in header:
                    hint = (
                        "; it must be separated by commas" if len(header) == 1 and set(header[0]) & set(";\t|") else ""
                    )
                    raise UserError(
                        f"{path}: there is no column {column!r}, only {', '.join(map(repr, header)) or 'an empty file'}"
                        f"{hint}; name the right one with --data.{options[column]}"
                    )
            for row in reader:
                values = {column: (row[column] or "").strip() for column in columns}
                for column, value in values.items():
                    if not value:
                        raise UserError(
                            f"{path}, row {reader.line_num}: {column} is empty; fill it in or delete the row"
                        )
                rows.append((reader.line_num, values))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.object[error.start]:#04x}); save it as CSV UTF-8") from error
    except (csv.Error, OSError) as error:
        raise UserError(f"{path}: unreadable as CSV ({error}); save it again as CSV UTF-8") from error
    if not rows:
        raise UserError(f"{path}: no rows below the header; add one per image")
    return rows
