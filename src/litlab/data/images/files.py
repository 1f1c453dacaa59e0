"""The user's own images: where they are, and what is known of each."""

import glob
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

from litlab.data.files import Frame, check_columns, read_cells
from litlab.data.images.decode import Images, is_image
from litlab.data.split import SPLIT_NAMES, SPLITS
from litlab.errors import UserError, first_line
from litlab.util.text import plural

TABLES = (".csv", ".tsv", ".gz", ".parquet", ".json", ".jsonl", ".xlsx")
_THUMBNAILS = {"@eaDir", "__MACOSX"}  # folders that storage boxes and archives add
# Types of columns that hold image files, as Arrow calls them: bytes, or `datasets`' pairs of bytes
# and path
_IMAGE_TYPE = r"(large_)?binary|struct<.*\bbytes: (large_)?binary.*>"


@dataclass(frozen=True)
class Listing:
    """Images, and a table of what is known of them.

    Args:
        cells: A row for each image, as of `read_cells`.
        images: The images.
        names: What messages call each.
        status: What changes with the contents of the files that hold them.
        predefined: The split of each that files or folders say, str of shape (image,); None where
            they say none.
        digests: A number for each that is the same for the same contents; None where the images
            would have to be decoded for it.
    """

    cells: Frame
    images: Images
    names: Sequence[str]
    status: list[str]
    predefined: np.ndarray | None = None
    digests: np.ndarray | None = None


# Image files


def find_images(folder: Path, pattern: str = "**") -> list[Path]:
    """Return the images in a folder, sorted; links are followed, hidden files and thumbnails left
    out.

    It warns of files of other kinds.

    Args:
        folder: The folder.
        pattern: Where in it to look; ``**`` stands for any depth.
    """
    images, others = [], Counter[str]()
    for name in sorted(glob.glob(pattern, root_dir=folder, recursive=True)):
        file = folder / name
        if not _THUMBNAILS.isdisjoint(file.parts):
            continue
        # What looks like an image by its name is one, and has to be read; a text beside them is not
        if is_image(name):
            images.append(file)
        elif file.is_file():
            others[file.suffix] += 1
    if others:
        kinds = ", ".join(f"{count:,} *{suffix}" for suffix, count in others.most_common(5))
        rank_zero_info(
            f"warning: {folder}: what is no image is left out: {plural(others.total(), 'file')}, "
            f"{kinds}"
        )
    return images


def list_folder(root: Path, file_column: str, target: str) -> Listing:
    """List <root>/train/<class>/, and val/<class>/ and test/<class>/ where they exist; or, where
    there is none of the three, <root>/<class>/.

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
    # <split>/<class>/... or <class>/..., at any depth below
    folders = [folder for name in SPLITS if (folder := root / name).is_dir()]
    files = [file for folder in folders or [root] for file in find_images(folder, "*/**")]
    names = [file.relative_to(root).as_posix() for file in files]
    # The first two parts of each name; the shape is for a folder without images
    predefined, classes = np.array([name.split("/")[:2] for name in names]).reshape(-1, 2).T
    if not folders:
        predefined, classes = None, predefined
    if not names or (predefined is not None and "train" not in predefined):
        layout = "train/<class>" if folders else "<class>"
        raise UserError(f"data.path: there are no images in {root}/{layout}/; put some there")
    # Classes they are, even if they are called by numbers
    cells = pd.DataFrame({file_column: names, target: pd.Categorical(classes)}, names)
    return list_table(cells, str(root), root, file_column, predefined)


def list_table(
    cells: Frame, where: str, folder: Path, file_column: str, predefined: np.ndarray | None = None
) -> Listing:
    """List the images that a table names, one a row.

    Args:
        cells: As of `read_cells`.
        where: What messages call the table.
        folder: What their names are relative to.
        file_column: The column of the names.
        predefined: As of `Listing`.
    """
    check_columns(cells, where, {file_column: "set data.file_column"})
    files = [folder / str(name) for name in cells[file_column]]
    status = [*map(read_status, files)]
    return Listing(cells, np.array(files, object), [*map(str, files)], status, predefined)


# Files that hold many images


def find_files(root: Path, suffix: str) -> dict[str, Path]:
    """Return the files of a kind in a folder, at any depth, by their names in it; or the file
    itself, if it is one.
    """
    is_one = root.is_file() and root.suffix.lower() == suffix
    files, folder = ([root], root.parent) if is_one else (root.rglob(f"*{suffix}"), root)
    return {file.relative_to(folder).as_posix(): file for file in sorted(files)}


def read_splits(root: Path, names: Sequence[str], numbers: np.ndarray) -> np.ndarray | None:
    """Return the split of each image that its file's name or folders say, such as
    ``train-00000-of-00002.parquet``.

    Args:
        root: The folder of the files; or the only file, whose name says nothing.
        names: Their names in the folder.
        numbers: The number of each image's file, int64 of shape (image,).

    Returns:
        As of `Listing`.

    Raises:
        UserError: Some names say a split, and none says train.
    """
    # Whole words only: "trainspotting.tar" says nothing
    words = [re.split(r"[^a-z]+", name.lower()) for name in names]
    splits = [[SPLIT_NAMES[word] for word in of_name if word in SPLIT_NAMES] for of_name in words]
    if root.is_file() or not any(splits):
        return None
    # Beside files that say a split, those that say none are for training
    predefined = np.array([split[0] if split else "train" for split in splits])
    if "train" not in predefined:
        raise UserError(f"data.path: no file in {root} is called train; name one so")
    return predefined[numbers]


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
        from pyarrow import parquet

        return parquet.read_table([*self.files], columns=[self.column])[0]

    def __getitem__(self, positions: np.ndarray) -> list[bytes]:
        cells = [self._cells[int(position)].as_py() for position in positions]
        return [cell["bytes"] if isinstance(cell, dict) else cell for cell in cells]


def list_parquet(root: Path, file_column: str) -> Listing | None:
    """List images in Parquet, as Hugging Face's hub keeps them; None where there are none.

    Args:
        root: A file, or a folder of files which say train, val or test in their names, or nothing.
        file_column: What a column of their names will be called.

    Raises:
        UserError: A file can't be read.
    """
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet

    # The table of each file, without its images
    files, column, tables = find_files(root, ".parquet"), "", []
    for name, file in files.items():
        try:
            schema: Any = parquet.read_schema(file)
            images = [cell.name for cell in schema if re.fullmatch(_IMAGE_TYPE, str(cell.type))]
            if not images:
                return None  # a table of file names, then
            column = images[0]
            # Images are read later, and boxes and the like not at all
            nested = [cell.name for cell in schema if pa.types.is_nested(cell.type)]
            others = [other for other in schema.names if other not in (column, *nested)]
            cells = parquet.read_table(file, columns=others).to_pandas(integer_object_nulls=True)
        except (OSError, ValueError) as error:
            raise UserError(
                f"data.path: {file} can't be read ({first_line(error)}); replace or delete it"
            ) from error

        # The `datasets` package notes the names of classes; -1 stands for none
        notes = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        for label, feature in notes.get("info", {}).get("features", {}).items():
            if label in cells and "names" in feature:
                cells[label] = cells[label].map(dict(enumerate(feature["names"])))
        tables.append(cells.assign(**{file_column: [f"{name}:{row}" for row in range(len(cells))]}))
    if not tables:
        return None
    # One table of all, in which each image has a row
    numbers = np.repeat(range(len(tables)), [*map(len, tables)])
    cells = read_cells(pd.concat(tables))
    names, status = cells[file_column].tolist(), [*map(read_status, files.values())]
    images = ParquetImages([*files.values()], column)
    return Listing(cells, images, names, status, read_splits(root, [*files], numbers))


# What tells whether images are the same


def read_status(file: Path) -> str:
    """Return what changes with the content of a file: no program can set back the time at which one
    has changed.
    """
    with suppress(OSError):  # of a broken link, which decoding tells of
        status = file.stat()
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return ""


def warn_of_copies(rows: Frame, targets: Frame, where: str) -> None:
    """Warn of pictures that come twice: with another target, or in training and evaluation.

    Args:
        rows: ``name``, ``digest`` and ``split`` of each image.
        targets: The columns of its target.
        where: What messages call the images.
    """
    # The same digest twice with two targets: one of them is wrong, or the picture is ambiguous
    rows = rows[rows["split"] != ""]
    copies = rows[rows.duplicated("digest", keep=False)]
    texts = [", ".join(map(str, cells)) for cells in targets.loc[copies.index].to_numpy()]
    copies = copies.assign(target=texts)
    different = copies.drop_duplicates(["digest", "target"])
    different = different[different.duplicated("digest", keep=False)].sort_values("digest")
    if len(different):
        first, second = (
            f"{row['name']} ({row['target']})" for _, row in different.iloc[:2].iterrows()
        )
        rank_zero_info(
            f"warning: {where}: {first} and {second} are the same picture (such pictures: "
            f"{different['digest'].nunique():,}); delete what is wrong"
        )
    # In training and in evaluation, whatever the targets are
    is_train = copies["split"] == "train"
    seen = (~is_train & copies["digest"].isin(copies["digest"][is_train])).sum()
    if seen:
        rank_zero_info(
            f"warning: {where}: training has {seen:,} of the {(rows['split'] != 'train').sum():,} "
            "images for evaluation, too, so results look better than they are"
        )
