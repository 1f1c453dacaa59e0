"""Images that are in a data set more than once."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info
from tqdm import tqdm

from litlab.data.images.listing import SPLITS, Listing
from litlab.errors import UserError
from litlab.util.progress import progress_bar

_END = 4096  # bytes: compressed files of one size that are not the same differ there


@dataclass(frozen=True)
class _Image:
    path: Path
    split: str
    label: int


def check_copies(listing: Listing) -> None:
    """Look for files that are the same, by a link or by their bytes. Copies in two splits are reported.

    Of those that share their size the last bytes are read, and all of them where these agree.

    Raises:
        UserError: Copies are in two classes.
    """
    images = [
        _Image(listing.root / name, split, label)
        for split, names in listing.files.items()
        for name, label in zip(names, listing.labels[split].tolist(), strict=True)
    ]
    groups = [[image for image in images if _size(image.path)]]  # decoding names those that are empty
    for key in (_size, _end, _content):
        with progress_bar(total=sum(map(len, groups)), desc="comparing images") as progress:
            groups = [part for group in groups for part in _parts(group, key, progress)]
    _refuse_two_classes(groups, listing.class_names)
    for one, other in combinations(SPLITS, 2):
        shared = [group for group in groups if {one, other} <= {image.split for image in group}]
        if shared:
            count = sum(image.split == other for group in shared for image in group)
            first = [next(image.path for image in shared[0] if image.split == split) for split in (one, other)]
            rank_zero_info(
                f"{listing.root}: {count} images of {other} are in {one} too, the first {first[1]} (as {first[0]}): "
                f"results on them will look better than they are"
            )
    within = sum(max(0, sum(image.split == "train" for image in group) - 1) for group in groups)
    if within and "val" not in listing.files:
        rank_zero_info(
            f"{listing.root}: {within} images of train are copies of others there: an image and its copy may be on "
            f"both sides where a part of train is set aside"
        )


def _parts(group: list[_Image], key: Callable[[Path], Hashable], progress: tqdm) -> list[list[_Image]]:
    """Return the parts of a group that have the same key, those of one image left out."""
    parts: dict[Hashable, list[_Image]] = defaultdict(list)
    for image in group:
        parts[key(image.path)].append(image)
        progress.update(1)
    return [part for part in parts.values() if len(part) > 1]


def _size(path: Path) -> Hashable:
    return os.stat(path).st_size


def _end(path: Path) -> Hashable:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _END))
            return stream.read()
    except OSError:
        return path  # like no other one; decoding names those that can't be read


def _content(path: Path) -> Hashable:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


def _refuse_two_classes(groups: list[list[_Image]], class_names: list[str]) -> None:
    wrong = [group for group in groups if len({image.label for image in group}) > 1]
    if wrong:
        first = wrong[0][0]
        second = next(image for image in wrong[0] if image.label != first.label)
        others = f" (and {len(wrong) - 1} more images)" if len(wrong) > 1 else ""
        raise UserError(
            f"{first.path} and {second.path}{others} are the same image in two classes, "
            f"{class_names[first.label]!r} and {class_names[second.label]!r}; delete the wrong one"
        )
