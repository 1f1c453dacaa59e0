"""The user's own images: which files there are, of which class, in which split."""

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.classes import sort_classes, warn_of_like_classes
from litlab.data.frames import FileFormat, Policy, UserFile, check_columns, drop_bad_rows, read_frame
from litlab.data.split import SPLITS
from litlab.errors import UserError

_SUFFIXES = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".bmp", ".gif", ".webp", ".avif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
)  # fmt: skip
_NO_FOLDERS = "@eaDir", "__MACOSX"  # in which storage boxes keep thumbnails, and archives what belongs to a Mac


@dataclass(frozen=True)
class Listing:
    """Files and classes of a data set, nothing decoded yet.

    Args:
        files: The files, those of a split one after the other.
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
        digest = hashlib.sha256(repr(self.class_names).encode())
        for file, label, split in zip(self.files, self.labels.tolist(), self.given.tolist(), strict=True):
            try:
                status = os.stat(file)
                marks = status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
            except OSError:  # a broken link, which decoding tells of
                marks = ()
            digest.update(os.fsencode(file) + repr((label, split, marks)).encode())
        return digest.hexdigest()


@cache
def get_suffixes() -> tuple[str, ...]:
    return (*_SUFFIXES, ".heic", ".heif") if find_spec("pillow_heif") else _SUFFIXES


def _kinds() -> str:
    return ", ".join(get_suffixes())


def walk_images(folder: Path, others: Counter[str] | None = None) -> list[Path]:
    """Return the images in a folder, at any depth, sorted; without hidden files and thumbnails.

    torchvision's `make_dataset` does not leave these out, and links that lead in circles give it images many times.

    Args:
        folder: The folder. Links are followed.
        others: Counts files of other kinds by the ends of their names.
    """
    found, seen = [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(root) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(root))
        folders[:] = filter(_is_shown, folders)
        for name in filter(_is_shown, names):
            if name.lower().endswith(get_suffixes()):
                found.append(os.path.join(root, name))
            elif others is not None:
                others[os.path.splitext(name)[1].lower() or name] += 1
    return [Path(name) for name in sorted(found)]


def _is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in _NO_FOLDERS


def _class_folders(folder: Path) -> Iterator[str]:
    return (entry.name for entry in os.scandir(folder) if entry.is_dir() and _is_shown(entry.name))


def list_folder(root: Path) -> Listing:
    """List <root>/train/<class>/, and val/<class>/ and test/<class>/ where they exist.

    Raises:
        UserError: A folder is missing or empty, or a class of val/ or test/ is not in train/.
    """
    expected = "images belong in folders <path>/train/<class>/, and optionally val/ and test/ like it"
    if not (root / "train").is_dir():
        raise UserError(f"data.path: there is no folder {root / 'train'}; {expected}")
    classes = sort_classes(_class_folders(root / "train"))
    if len(classes) < 2:
        raise UserError(
            f"data.path: {root / 'train'} has {len(classes)} class folders, 2 or more are needed; {expected}"
        )

    files, labels, given, others = [], [], [], Counter()
    for split in filter(lambda split: (root / split).is_dir(), SPLITS):
        for name in sort_classes(_class_folders(root / split)):
            if name not in classes:
                raise UserError(f"{root / split / name}: this class is not in {root / 'train'}; add or delete it")
            images = walk_images(root / split / name, others)
            if not images:
                raise UserError(f"{root / split / name}: no images in it ({_kinds()}); add some")
            files += images
            labels += [classes.index(name)] * len(images)
            given += [split] * len(images)
        loose = [name for name in os.listdir(root / split) if name.lower().endswith(get_suffixes())]
        others["images outside of class folders"] += len(loose)

    if others.total():
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in others.most_common(5) if count)
        heic = "; pip install pillow-heif for .heic" if ".heic" in others and ".heic" not in get_suffixes() else ""
        rank_zero_info(f"warning: {root}: {others.total():,} files are left out: {kinds}{heic}")
    warn_of_like_classes(classes, root)
    return Listing(files, np.array(labels, np.int64), np.array(given), classes)


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
    frame = read_frame(source, form, bad_rows=bad_rows)
    where, root = (
        (source, Path(source).expanduser().parent) if isinstance(source, str | Path) else ("data.path", Path())
    )
    settings = {"file_column": file_column, "label_column": label_column, "split_column": split_column}
    columns = {column: f"set --data.{setting}" for setting, column in settings.items() if column is not None}
    check_columns(frame, where, columns)

    problems = {}
    names = frame[label_column] if split_column is None else frame.loc[frame[split_column] == "train", label_column]
    trained = set(names.dropna().astype(str))
    chosen = frame[list(columns)]
    for row, cells, empty in zip(frame.index, chosen.to_numpy(object), chosen.isna().to_numpy(), strict=True):
        split = "train" if split_column is None else cells[2]
        if empty.any():
            problems[row] = f"{chosen.columns[empty.argmax()]} is empty"
        elif split not in SPLITS:
            problems[row] = f"{split_column} is {split!r}, not train, val or test"
        elif str(cells[1]) not in trained:
            problems[row] = f"class {str(cells[1])!r} is in {split}, but not in train"
        elif not (root / str(cells[0])).is_file():
            problems[row] = f"there is no file {cells[0]}"
    frame = drop_bad_rows(frame, problems, bad_rows, where)

    given = np.array(["train"] * len(frame) if split_column is None else frame[split_column].tolist())
    labels = frame[label_column].astype(str).to_numpy()
    classes = sort_classes(labels[given == "train"])
    if len(classes) < 2:
        raise UserError(f"{where}: the training rows have {len(classes)} classes, 2 or more are needed; add some")
    warn_of_like_classes(classes, where)
    numbers = {name: place for place, name in enumerate(classes)}
    files = [root / str(name) for name in frame[file_column]]
    return Listing(files, np.array([numbers[name] for name in labels], np.int64), given, classes)


def find_images(source: str) -> list[Path]:
    """Find the images to predict: a folder (searched at any depth), a file, or a pattern such as ``photos/*.jpg``.

    Raises:
        UserError: There are none.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        images = walk_images(path)
    elif path.exists():
        images = [path]
    else:
        found = sorted(glob.glob(str(path), recursive=True))
        images = [Path(name) for name in found if name.lower().endswith(get_suffixes())]
    if not images:
        raise UserError(
            f"--input {source}: there are no images ({', '.join(get_suffixes())}); name a folder, file or pattern"
        )
    return images
