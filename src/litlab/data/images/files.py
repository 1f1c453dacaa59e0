"""The user's own images: where they are, and what is told of each."""

import glob
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.files import Frame, check_columns, check_file, read_cells
from litlab.data.images.decode import Images, is_image
from litlab.data.split import SPLIT_NAMES, SPLITS
from litlab.errors import UserError, first_line

_THUMBNAILS = {"@eaDir", "__MACOSX"}  # folders that storage boxes and archives add
TABLES = (".csv", ".gz", ".parquet", ".jsonl", ".xlsx")


@dataclass(frozen=True)
class Listing:
    """Images, and the table of what is told of them.

    Args:
        cells: A row for each image, as of `read_cells`.
        images: The images.
        names: What messages call each.
        status: What changes with the contents of the files that hold them.
        given: The split of each that files or folders say, str of shape (image,); None where they
            say none.
        shards: The number of the tar file that each is in, int64 of shape (image,), ascending.
        digests: What is the same for the same contents, if that is there without decoding.
        has_classes: Whether they have classes, even if these are called by numbers.
    """

    cells: Frame
    images: Images
    names: Sequence[str]
    status: list[str]
    given: np.ndarray | None = None
    shards: np.ndarray | None = None
    digests: np.ndarray | None = None
    has_classes: bool = False


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
        if is_image(name):
            images.append(file)
        elif file.is_file():
            others[file.suffix] += 1
    if others:
        kinds = ", ".join(f"{count:,} *{suffix}" for suffix, count in others.most_common(5))
        rank_zero_info(
            f"warning: {folder}: {others.total():,} files are no images and are left out: {kinds}"
        )
    return images


def list_folder(root: Path, file_column: str, target: str) -> Listing:
    """List <root>/train/<class>/, and val/<class>/ and test/<class>/ where they exist.

    Args:
        root: The folder.
        file_column: What the column of the files is called.
        target: What that of the classes is called.

    Raises:
        UserError: The folder is missing, or has nothing to train on.
    """
    import pandas as pd

    if not root.is_dir():
        raise UserError(f"data.path: there is no folder {root}; name one that has train/<class>/")
    files = [file for split in SPLITS for file in find_images(root / split, "*/**")]
    parts = [file.relative_to(root).parts for file in files]
    given = np.array([split for split, *_ in parts])
    if "train" not in given:
        raise UserError(f"data.path: there are no images in {root}/train/<class>/; put some there")
    names = ["/".join(part) for part in parts]
    cells = pd.DataFrame({file_column: names, target: [part[1] for part in parts]}, names)
    return list_files(cells, files, given=given, has_classes=True)


def list_table(cells: Frame, folder: Path, file_column: str) -> Listing:
    """List the images that a table names, one a row.

    Args:
        cells: As of `read_cells`.
        folder: What their names are relative to.
        file_column: The column of the names.
    """
    check_columns(cells, "data.path", {file_column: "set data.file_column"})
    return list_files(cells, [folder / str(name) for name in cells[file_column]])


def list_files(cells: Frame, files: list[Path], **options: Any) -> Listing:
    """Return a listing of files, each with its row in a table."""
    status = [*map(read_status, files)]
    return Listing(cells, np.array(files, object), [*map(str, files)], status, **options)


# Parquet that holds the images themselves, as Hugging Face's hub keeps them


class ParquetImages:
    """The images in a column of Parquet files, read when the first is asked for.

    Args:
        files: The files.
        column: The column, of bytes, or of ``bytes`` and ``path``.
    """

    def __init__(self, files: Sequence[Path], column: str) -> None:
        self.files, self.column = files, column

    @cached_property
    def _cells(self) -> Any:
        import pyarrow as pa
        from pyarrow import parquet

        tables = [parquet.read_table(file, columns=[self.column]) for file in self.files]
        return pa.chunked_array([part for table in tables for part in table[0].chunks])

    def __call__(self, rows: np.ndarray) -> list[bytes]:
        cells = [self._cells[int(row)].as_py() for row in rows]
        return [cell["bytes"] if isinstance(cell, dict) else cell for cell in cells]


def find_parquet(path: Path) -> tuple[list[Path], str] | None:
    """Return the Parquet files at a path, a file or a folder, and the column that holds images;
    None where there are none.
    """
    import pyarrow as pa
    from pyarrow import parquet

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or (path.suffix != ".parquet" and not path.is_dir()):
        return None
    try:
        schema = parquet.read_schema(check_file(files[0], "data.path"))
    except (OSError, ValueError) as error:
        raise UserError(f"data.path: {files[0]} can't be read ({first_line(error)})") from error
    for field in schema:
        kind: Any = field.type
        is_struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        if is_struct or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return files, field.name
    return None


def list_parquet(root: Path, files: Sequence[Path], column: str, file_column: str) -> Listing:
    """List the images in Parquet files.

    Args:
        root: What was named: one of the files, or the folder.
        files: The files, which say train, val or test in their names, or nothing.
        column: The column of the images.
        file_column: What a column of their names will be called.
    """
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet

    parts, splits = [], []
    for file in files:
        schema = parquet.read_schema(file)
        others = [field.name for field in schema if not pa.types.is_nested(field.type)]
        table = parquet.read_table(file, columns=[name for name in others if name != column])
        cells = table.to_pandas(integer_object_nulls=True)
        for name, classes in _find_class_names(schema).items():
            if name in cells:
                # -1 stands for a class that is not told
                cells[name] = cells[name].map(dict(enumerate(classes)))
        place = file.relative_to(root).as_posix() if root.is_dir() else file.name
        cells[file_column] = [f"{place}:{row}" for row in range(len(cells))]
        parts.append(cells)
        splits += [name_split(place) if root.is_dir() else None] * len(cells)
    cells = read_cells(pd.concat(parts))
    return Listing(
        cells,
        ParquetImages(files, column),
        cells[file_column].tolist(),
        [*map(read_status, files)],
        complete_splits(splits, root),
    )


def _find_class_names(schema: Any) -> dict[str, list[str]]:
    """Return the names of classes that the `datasets` package notes, by column."""
    notes = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = notes.get("info", {}).get("features", {})
    return {name: kind["names"] for name, kind in features.items() if "names" in kind}


# What names of files say, and what tells whether images are the same


def name_split(place: str) -> str | None:
    """Return the split that a file's name or folders say, as train-00000-of-00002.parquet; None
    where they say none.
    """
    words = re.split(r"[^a-z]+", place.lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def complete_splits(splits: Sequence[str | None], root: Path) -> np.ndarray | None:
    """Return the splits that names of files say; None where none of them says one.

    Raises:
        UserError: Some say one, and none says train.
    """
    if not any(splits):
        return None
    given = np.array([split or "train" for split in splits])
    if "train" not in given:
        raise UserError(f"data.path: no file in {root} is called train; name one so")
    return given


def read_status(file: Path) -> str:
    """Return what changes with the content of a file: no program can set back the time at which one
    has changed.
    """
    with suppress(OSError):  # of a broken link, which decoding tells of
        status = file.stat()
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return ""


def compute_mark(*facts: Any) -> str:
    """Return a short name that changes with any of some facts."""
    return f"images-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"


def warn_of_copies(rows: Frame, targets: list[str], where: str) -> None:
    """Warn of pictures that come twice: with another target, or in training and evaluation.

    Args:
        rows: ``name``, ``digest`` and ``split`` of each image, and its targets.
        targets: Their columns.
        where: What messages call the images.
    """
    rows = rows[rows["split"] != ""]
    copies = rows[rows.duplicated("digest", keep=False)]
    different = copies.drop_duplicates(["digest", *targets])
    different = different[different.duplicated("digest", keep=False)].sort_values("digest")
    if len(different):
        first, second = (
            f"{row['name']} ({', '.join(map(str, row[targets]))})"
            for _, row in different.iloc[:2].iterrows()
        )
        rank_zero_info(
            f"warning: {where}: {first} and {second} are the same picture, and "
            f"{different['digest'].nunique() - 1:,} others are like it; delete what is wrong"
        )
    is_train = copies["split"] == "train"
    learned = copies["digest"].isin(copies["digest"][is_train])
    seen = (~is_train & learned).sum()
    if seen:
        rank_zero_info(
            f"warning: {where}: {seen:,} of {(rows['split'] != 'train').sum():,} images for "
            "evaluation are training images, too, so results look better than they are"
        )
