"""Folders of images: what is found in them, and a data set of a folder per class."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.images.decode import SUFFIXES
from litlab.data.images.listing import SPLITS, Listing, in_order, no_file
from litlab.errors import UserError


def image_files(folder: Path) -> Iterator[str]:
    """Find the image files in a folder, at any depth, and yield their names relative to it.

    Hidden files and folders are left out. Links are followed, but every real folder is searched once: loops end. Some
    names may be no files: see `check_files`.

    Raises:
        UserError: A folder can't be read, or a link leads to a folder that this one lies in.
    """
    searched: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        here = waiting.pop()
        found = _entries(folder / here)
        status = os.stat(folder / here)
        if (status.st_dev, status.st_ino) in searched:
            continue
        searched.add((status.st_dev, status.st_ino))
        folders = []
        for entry in found:
            name = os.path.join(here, entry.name)
            if _is_folder(entry):
                if entry.is_symlink():
                    _check_link(folder, name)
                folders.append(name)
            elif entry.name.lower().endswith(SUFFIXES):
                yield name
        waiting += reversed(folders)


def check_files(files: list[Path]) -> None:
    """Refuse what has the name of an image but is not a file: a broken link, a pipe, a device.

    Raises:
        UserError: There is one; the message names the first and counts the others.
    """
    wrong = [(file, reason) for file in files if (reason := no_file(file))]
    if wrong:
        file, reason = wrong[0]
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UserError(f"{file}{others}: {reason}; replace or delete it")


def folder_classes(path: Path) -> list[str]:
    """Read the class names from the folders in <path>/train/, of which there must be two or more.

    Raises:
        UserError: There is no folder train/, it can't be read, or it has fewer than two class folders or one whose name
            is not UTF-8.
    """
    expected = "images belong in folders <path>/train/<class>/"
    if not os.path.isdir(path):
        what = f"{path} is not a folder" if os.path.lexists(path) else f"there is no folder {path}"
        raise UserError(f"data.path: {what}; {expected}")
    if not os.path.isdir(path / "train"):
        raise UserError(f"data.path: {path} has no folder train/; {expected}, and optionally val/ and test/ like it")
    names = _class_folders(path / "train")
    if len(names) < 2:
        raise UserError(
            f"data.path: {path / 'train'} has {len(names)} class folders, at least 2 are needed; {expected}"
        )
    return names


def list_folder(path: Path) -> Listing:
    """List <path>/train/<class>/, and val/<class>/ and test/<class>/ where they exist.

    Returns:
        For each split the images, sorted within each class, and their labels, int64 of shape (images,).

    Raises:
        UserError: A folder is missing, empty or unreadable, a class of val/ or test/ is not in train/, or an image is
            no file.
    """
    classes = folder_classes(path)
    files: dict[str, list[str]] = {}
    labels: dict[str, Tensor] = {}
    for split in SPLITS:
        if not os.path.isdir(path / split):
            if os.path.lexists(path / split):
                raise UserError(f"{path / split}: not a folder, or a broken link; replace or delete it")
            continue
        found = _class_folders(path / split)
        for name in found:
            if name not in classes:
                raise UserError(f"{path / split / name}: this class is not in {path / 'train'}; add or delete it")
        names, numbers = [], []
        for name in found:
            images = sorted(image_files(path / split / name))
            if not images:
                raise _empty(path / split / name)
            names += [f"{split}/{name}/{image}" for image in images]
            numbers += [classes.index(name)] * len(images)
        if not names:
            raise UserError(f"{path / split}: no class folders with images in it; add them or delete the folder")
        files[split], labels[split] = names, torch.tensor(numbers)
    check_files([path / name for names in files.values() for name in names])
    _report_unused(path, classes)
    return Listing(path, classes, files, labels)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder and not hidden, sorted."""
    try:
        with os.scandir(folder) as found:
            return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(
            f"{folder}: this folder can't be read ({error.strerror}); change its permissions or delete it"
        ) from error


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link to one. A broken link may have been one: only those of images are let pass."""
    if not entry.is_symlink():
        return entry.is_dir()
    if not os.path.exists(entry) and not entry.name.lower().endswith(SUFFIXES):
        raise UserError(f"{entry.path}: a broken link; correct or delete it")
    return os.path.isdir(entry)


def _check_link(folder: Path, name: str) -> None:
    """Refuse a link to a folder further up: all that is in it, other classes included, would be taken for this one."""
    target = os.path.realpath(folder / name)
    if os.path.realpath(folder).startswith(os.path.join(target, "")) and not os.path.samefile(folder, target):
        raise UserError(f"{folder / name}: a link to {target}, which {folder} lies in; delete it")


def _class_folders(folder: Path) -> list[str]:
    names = {entry.name for entry in _entries(folder) if _is_folder(entry)}
    for name in sorted(names):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UserError(f"{folder / name}: the name of this class is not UTF-8; rename the folder") from None
    return in_order(names)


def _empty(folder: Path) -> UserError:
    return UserError(f"{folder}: no images in this class ({', '.join(SUFFIXES)}); add some or delete the folder")


def _report_unused(path: Path, classes: list[str]) -> None:
    """Tell of images that lie where none are looked for."""
    for entry in _entries(path):
        if entry.name in SPLITS:
            loose = [e.name for e in _entries(path / entry.name) if e.is_file() and e.name.lower().endswith(SUFFIXES)]
            if loose:
                rank_zero_info(
                    f"{entry.path}: {len(loose)} images outside the class folders are left out, such as {loose[0]}"
                )
        elif any(os.path.isdir(path / entry.name / name) for name in classes):
            rank_zero_info(f"{entry.path} is left out: only train/, val/ and test/ are read")
