"""The user's own images: which files there are, of which class, in which split."""

import glob
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from litlab.data.columns import fit_column
from litlab.data.files import (
    FileFormat,
    Frame,
    Policy,
    UserFile,
    check_columns,
    drop_bad_rows,
    name_source,
    read_cells,
)
from litlab.data.images.decode import find_kinds
from litlab.data.split import SPLITS
from litlab.errors import UserError
from litlab.util.classes import sort_classes

_THUMBNAILS = {"@eaDir", "__MACOSX"}  # folders that storage boxes and archives add


def find_images(folder: Path, pattern: str = "**") -> list[Path]:
    """Return the images in a folder, sorted; links are followed, hidden files and thumbnails left
    out.

    How many files are of other kinds, it tells.

    Args:
        folder: The folder.
        pattern: Where in it to look; ``**`` stands for any depth.
    """
    images, others = [], Counter[str]()
    for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True)):
        file = folder / name
        if not _THUMBNAILS.isdisjoint(file.parts):
            continue
        if file.suffix.lower() in find_kinds():
            images.append(file)
        elif file.is_file():
            others[file.suffix] += 1
    if others:
        kinds = ", ".join(f"{count:,} *{suffix}" for suffix, count in others.most_common(5))
        rank_zero_info(
            f"warning: {folder}: {others.total():,} files are no images and are left out: {kinds}"
        )
    return images


def list_folder(root: Path, bad_rows: Policy) -> Frame:
    """List <root>/train/<class>/, and val/<class>/ and test/<class>/ where they exist.

    Args:
        root: The folder.
        bad_rows: Whether images of a class that train/ lacks are an error or left out.

    Returns:
        As `list_table` does.

    Raises:
        UserError: The folder is missing, has less than two classes, or bad images which may not be
            left out.
    """
    import pandas as pd

    if not root.is_dir():
        raise UserError(f"data.path: there is no folder {root}; name one that has train/<class>/")
    rows = []
    for split in SPLITS:
        folder = root / split
        rows += [
            (file, file.relative_to(folder).parts[0], split) for file in find_images(folder, "*/**")
        ]
    frame = pd.DataFrame(rows, columns=["file", "label", "split"])
    return _check_frame(frame.set_index("file", drop=False), bad_rows, "image")


def list_table(source: UserFile, settings: Any) -> Frame:
    """List the images that a table names, one a row; see `ImageData`.

    Args:
        source: The table. Its file names are relative to its folder; those in a frame to the
            current one.
        settings: Those of `ImageData`: file_column, label_column, split_column and bad_rows.

    Returns:
        A frame of ``file``, ``label`` (categorical, the classes in their order), ``split`` so far,
        and ``status``, which changes with the content of the file.

    Raises:
        UserError: The table or a column is missing, or there are bad rows which may not be left
            out.
    """
    import pandas as pd

    form, where = FileFormat(), name_source(source, "data.path")
    table = read_cells(source, form, bad_rows=settings.bad_rows)
    folder = getattr(source, "parent", Path())
    columns = settings.file_column, settings.label_column, settings.split_column
    remedy = "set data.file_column, data.label_column or data.split_column"
    check_columns(table, "data.path", dict.fromkeys(filter(None, columns), remedy))
    file, label, split = map(table.get, columns)
    frame = pd.DataFrame(
        {
            "file": file.map(lambda name: folder / str(name)),
            "label": fit_column(label, "category", form, where).read(label, form, where),
            "split": "train" if split is None else split,
        }
    )
    return _check_frame(frame, settings.bad_rows, "row")


def _check_frame(frame: Frame, bad_rows: Policy, unit: str) -> Frame:
    """Refuse rows of file, label and split that can't be used, or leave them out, and complete the
    others.
    """
    import pandas as pd

    classes = frame.loc[frame["split"] == "train", "label"].dropna()
    checks = {
        "its split is not train, val or test": ~frame["split"].isin(SPLITS),
        "it has no class, or none of the training images": ~frame["label"].isin(classes),
    }
    problems = {row: problem for problem, wrong in checks.items() for row in frame.index[wrong]}
    frame = drop_bad_rows(frame, problems, bad_rows, "data.path", unit)

    names = sort_classes(classes)
    if len(names) < 2:
        raise UserError(
            f"data.path: it has {len(names)} classes to train on (a folder those in "
            "train/<class>/), 2 or more are needed; add some"
        )
    return frame.assign(
        label=pd.Categorical(frame["label"], names), status=frame["file"].map(_read_status)
    )


def _read_status(file: Path) -> str:
    """Return what changes with the content of a file: no program can set back the time at which one
    has changed.
    """
    with suppress(OSError):  # of a broken link, which decoding tells of
        status = file.stat()
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return ""
