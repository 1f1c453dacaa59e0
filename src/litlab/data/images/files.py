"""The user's own images: which files there are, of which class, in which split."""

import glob
import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.classes import sort_classes, warn_of_like_classes
from litlab.data.frames import FileFormat, Policy, UserFile, check_columns, drop_bad_rows, read_frame
from litlab.data.split import SPLITS
from litlab.errors import UserError

SUFFIXES = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".bmp", ".gif", ".webp", ".avif", ".heic", ".tif", ".tiff", ".ppm",
    ".pgm", ".pbm",
)  # fmt: skip
_THUMBNAILS = {"@eaDir", "__MACOSX"}  # folders that storage boxes and archives add


@dataclass(frozen=True)
class Listing:
    """Files and classes of a data set, nothing decoded yet.

    Args:
        files: The files.
        labels: Class of each, int64 of shape (file,).
        given: The split that each is in so far, str of shape (file,).
        class_names: Name of each class, in the order of the labels.
    """

    files: list[Path]
    labels: np.ndarray
    given: np.ndarray
    class_names: list[str]

    @cached_property
    def digest(self) -> str:
        """Changes with any name, label or content: no program can set back the time at which a file has changed."""
        parts = self.class_names, list(map(str, self.files)), self.labels.tolist(), self.given.tolist()
        digest = hashlib.sha256(repr(parts).encode())
        for file in self.files:
            with suppress(OSError):  # of a broken link, which decoding tells of
                status = file.stat()
                digest.update(repr((status.st_size, status.st_mtime_ns, status.st_ctime_ns)).encode())
        return digest.hexdigest()


def find_images(folder: Path, others: Counter[str] | None = None) -> list[Path]:
    """Return the images in a folder, at any depth, sorted; links are followed, hidden files and thumbnails left out.

    Args:
        folder: The folder.
        others: Counts files of other kinds by the ends of their names.
    """
    names = [name for name in sorted(glob.glob("**", root_dir=folder, recursive=True)) if _is_shown(name)]
    images = [folder / name for name in names if name.lower().endswith(SUFFIXES)]
    if others is not None:
        others.update(Path(name).suffix for name in names if folder / name not in images and (folder / name).is_file())
    return images


def _is_shown(name: str) -> bool:
    return _THUMBNAILS.isdisjoint(Path(name).parts)


def list_folder(root: Path) -> Listing:
    """List <root>/train/<class>/, and val/<class>/ and test/<class>/ where they exist.

    Raises:
        UserError: A folder is missing or empty, or a class of val/ or test/ is not in train/.
    """
    if not root.is_dir():
        raise UserError(f"data.path: there is no folder {root}; name one that has train/<class>/")
    folders = {
        split: [folder for folder in (root / split).glob("[!.]*") if folder.is_dir() and _is_shown(folder.name)]
        for split in SPLITS
    }
    classes = _check_classes([folder.name for folder in folders["train"]], root / "train/<class>/")
    files, labels, given = [], [], []
    others: Counter[str] = Counter()
    for split in SPLITS:
        for folder in sorted(folders[split]):
            images = find_images(folder, others)
            if not images or folder.name not in classes:
                problem = (
                    f"no images ({', '.join(SUFFIXES)})" if not images else f"this class is not in {root / 'train'}"
                )
                raise UserError(f"{folder}: {problem}; add or delete it")
            files += images
            labels += [classes.index(folder.name)] * len(images)
            given += [split] * len(images)
    if others:
        kinds = ", ".join(f"{count:,} {suffix or 'without a suffix'}" for suffix, count in others.most_common(5))
        rank_zero_info(f"warning: {root}: {others.total():,} files are no images and are left out: {kinds}")
    return Listing(files, np.array(labels), np.array(given), classes)


def list_table(
    source: UserFile, form: FileFormat, file_column: str, label_column: str, split_column: str | None, bad_rows: Policy
) -> Listing:
    """List the images that a table names, one a row; see `ImageData`.

    Args:
        source: The table. Its file names are relative to its folder; those in a frame to the current one.
        form: How its cells are written.
        file_column: Column of the file names.
        label_column: Column of the class names.
        split_column: Column of the splits; None: all are in "train" so far.
        bad_rows: Whether rows that can't be used are an error or left out.

    Raises:
        UserError: The table or a column is missing, or there are bad rows which may not be left out.
    """
    import pandas as pd

    frame = read_frame(source, form, bad_rows=bad_rows)
    is_file = isinstance(source, str | Path)
    where, root = (source, Path(source).expanduser().parent) if is_file else ("data.path", Path())
    settings = {"file_column": file_column, "label_column": label_column, "split_column": split_column}
    check_columns(frame, where, {name: f"set --data.{setting}" for setting, name in settings.items() if name})
    if split_column is None:
        split_column = "split"
        frame[split_column] = "train"

    frame[label_column] = frame[label_column].astype(str).where(frame[label_column].notna())
    classes = frame.loc[frame[split_column] == "train", label_column].dropna()
    checks = {
        f"{file_column} is empty": frame[file_column].isna(),
        f"{split_column} is not train, val or test": ~frame[split_column].isin(SPLITS),
        f"{label_column} is empty, or no class of the training rows": ~frame[label_column].isin(classes),
    }
    problems = {row: problem for problem, wrong in checks.items() for row in frame.index[wrong]}
    frame = drop_bad_rows(frame, problems, bad_rows, where)
    names = _check_classes(classes.tolist(), where)
    labels = pd.Categorical(frame[label_column], categories=names).codes.astype(np.int64)
    files = [root / str(name) for name in frame[file_column]]
    return Listing(files, labels, frame[split_column].to_numpy(str), names)


def _check_classes(labels: list[str], where: object) -> list[str]:
    """Return the different classes in order."""
    classes = sort_classes(labels)
    if len(classes) < 2:
        raise UserError(f"data.path: {where} has {len(classes)} classes, 2 or more are needed; add some")
    warn_of_like_classes(classes, where)
    return classes
