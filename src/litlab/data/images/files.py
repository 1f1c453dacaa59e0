"""The user's own images: which files there are, of which class, in which split."""

import glob
import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.classes import sort_classes
from litlab.data.frames import Frame, Policy, UserFile, check_columns, drop_bad_rows, read_frame
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
        digest: Changes with any name, label, split or content.
    """

    files: list[Path]
    labels: np.ndarray
    given: np.ndarray
    class_names: list[str]
    digest: str


def find_images(folder: Path, others: Counter[str] | None = None) -> list[Path]:
    """Return the images in a folder, at any depth, sorted; links are followed, hidden files and thumbnails left out.

    Args:
        folder: The folder.
        others: Counts files of other kinds by the ends of their names.
    """
    images = []
    for name in sorted(glob.glob("**", root_dir=folder, recursive=True)):
        file = folder / name
        if not _THUMBNAILS.isdisjoint(Path(name).parts):
            continue
        if name.lower().endswith(SUFFIXES):
            images.append(file)
        elif others is not None and file.is_file():
            others[file.suffix or "without a suffix"] += 1
    return images


def list_folder(root: Path, bad_rows: Policy) -> Listing:
    """List <root>/train/<class>/, and val/<class>/ and test/<class>/ where they exist.

    Args:
        root: The folder.
        bad_rows: Whether images of a class that train/ lacks are an error or left out.

    Raises:
        UserError: The folder is missing, has less than two classes, or bad images which may not be left out.
    """
    import pandas as pd

    if not root.is_dir():
        raise UserError(f"data.path: there is no folder {root}; name one that has train/<class>/")
    rows, others = [], Counter[str]()
    for split in SPLITS:
        for file in find_images(root / split, others):
            label, *rest = file.relative_to(root / split).parts
            if rest:
                rows.append((file, label, split))
    if others:
        kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common(5))
        rank_zero_info(f"warning: {root}: {others.total():,} files are no images and are left out: {kinds}")
    frame = pd.DataFrame(rows, columns=["file", "label", "split"])
    return _check_frame(frame.set_index("file", drop=False), root, bad_rows, "image")


def list_table(
    source: UserFile, file_column: str, label_column: str, split_column: str | None, bad_rows: Policy
) -> Listing:
    """List the images that a table names, one a row; see `ImageData`.

    Args:
        source: The table. Its file names are relative to its folder; those in a frame to the current one.
        file_column: Column of the file names.
        label_column: Column of the class names.
        split_column: Column of the splits; None: all are in "train" so far.
        bad_rows: Whether rows that can't be used are an error or left out.

    Raises:
        UserError: The table or a column is missing, or there are bad rows which may not be left out.
    """
    import pandas as pd

    table = read_frame(source, bad_rows=bad_rows)
    is_file = isinstance(source, str | Path)
    where, root = (source, Path(source).expanduser().parent) if is_file else ("data.path", Path())
    columns = filter(None, (file_column, label_column, split_column))
    check_columns(table, where, dict.fromkeys(columns, "set data.file_column, data.label_column or data.split_column"))
    labels = table[label_column]
    frame = pd.DataFrame(
        {
            "file": table[file_column].map(lambda name: root / str(name), na_action="ignore"),
            "label": labels.astype(str).where(labels.notna()),
            "split": "train" if split_column is None else table[split_column],
        }
    )
    return _check_frame(frame, where, bad_rows, "row")


def _check_frame(frame: Frame, where: object, bad_rows: Policy, unit: str) -> Listing:
    """Refuse rows of file, label and split that can't be used, or leave them out, and list the others."""
    import pandas as pd

    classes = frame.loc[frame["split"] == "train", "label"].dropna()
    checks = {
        "it has no file": frame["file"].isna(),
        "its split is not train, val or test": ~frame["split"].isin(SPLITS),
        "it has no class, or none of the training images": ~frame["label"].isin(classes),
    }
    problems = {row: problem for problem, wrong in checks.items() for row in frame.index[wrong]}
    frame = drop_bad_rows(frame, problems, bad_rows, where, unit)

    names = sort_classes(classes)
    if len(names) < 2:
        raise UserError(
            f"data.path: {where} has {len(names)} classes to train on (of a folder those in train/<class>/), 2 or more "
            "are needed; add some"
        )
    frame = frame.assign(status=frame["file"].map(_read_status))
    labels = pd.Categorical(frame["label"], categories=names).codes.astype(np.int64)
    digest = hashlib.sha256(frame.to_csv().encode()).hexdigest()
    return Listing(frame["file"].tolist(), labels, frame["split"].to_numpy(str), names, digest)


def _read_status(file: Path) -> str:
    """Return what changes with the content of a file: no program can set back the time at which one has changed."""
    with suppress(OSError):  # of a broken link, which decoding tells of
        status = file.stat()
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return ""
