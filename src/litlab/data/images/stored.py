"""From image files to a cache of decoded arrays, and back from there."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.bad_rows import settle
from litlab.data.cache import new_cache, open_array, read_meta, write_array
from litlab.data.images.memory import moments
from litlab.data.images.sources import Source
from litlab.errors import UserError
from litlab.util.progress import progress_bar


@dataclass(frozen=True)
class Stored:
    """The contents of a cache.

    Args:
        images: For each split uint8 (image, channel, height, width), mapped from the file.
        labels: For each split int64 (image,).
        sums: For each split what `moments` returned, (image, channel, 2).
        shape: (channel, height, width).
        class_names: Name of each class.
        dropped: Number of bad rows and damaged images that were left out.
        notes: Lines that the user should see.
    """

    images: dict[str, Tensor]
    labels: dict[str, Tensor]
    sums: dict[str, np.ndarray]
    shape: tuple[int, int, int]
    class_names: list[str]
    dropped: int
    notes: list[str]


def store(source: Source, folder: Path) -> None:
    """Decode a source into its cache; a UserError says that an image is unreadable or odd, or what can't be written."""
    parts = source.parts()
    kept: dict[str, Tensor] = {}
    total = sum(len(part.labels) for part in parts.values())
    meta: dict[str, Any] = {"name": source.name, "class_names": source.class_names, "shape": source.shape}
    with (
        new_cache(folder, total * int(np.prod(source.shape))) as staging,
        progress_bar(total=total, desc="decoding images") as progress,
    ):
        for split, part in parts.items():
            sums: list[np.ndarray] = []

            def watched(blocks: Iterable[np.ndarray], sums: list[np.ndarray] = sums) -> Iterator[np.ndarray]:
                for block in blocks:
                    sums.append(moments(block))
                    yield block
                    progress.update(len(block))

            count = write_array(staging / f"{split}_images.npy", source.shape, watched(part.blocks()))
            kept[split] = part.kept_labels()
            if count != len(kept[split]):
                raise ValueError(f"{count} {split} images with {len(kept[split])} labels")
            np.save(staging / f"{split}_labels.npy", kept[split].numpy())
            np.save(
                staging / f"{split}_sums.npy", np.concatenate(sums or [np.empty((0, source.shape[0], 2), np.int64)])
            )
        bad = parts["train"].bad
        notes = settle((bad, sum(map(len, kept.values())))) if bad else []
        for split, labels in kept.items() if bad else ():
            _check_left(labels, split, source)
        meta["images"] = {split: len(labels) for split, labels in kept.items()}
        meta["dropped"], meta["notes"] = source.dropped + len(bad or ()), notes
        (staging / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


def _check_left(labels: Tensor, split: str, source: Source) -> None:
    """Refuse to go on where all images of a split, or of a class to learn, are damaged."""
    counts = torch.bincount(labels, minlength=len(source.class_names)).tolist()
    if not any(counts):
        raise UserError(f"data.path: none of the {split} images of {source.name} can be read; replace some")
    if split == "train" and 0 in counts:
        name = source.class_names[counts.index(0)]
        raise UserError(f"data.path: no training image of class {name!r} can be read; replace some")


def load(source: Source, folder: Path) -> Stored:
    """Open the cache of a source; the images are read from it as they are used.

    Raises:
        RuntimeError: It is not there, or not whole.
    """
    meta = read_meta(folder)

    def arrays(kind: str) -> dict[str, np.ndarray]:
        return {split: open_array(folder / f"{split}_{kind}.npy") for split in meta["images"]}

    return Stored(
        images={split: torch.from_numpy(array) for split, array in arrays("images").items()},
        labels={split: torch.from_numpy(array) for split, array in arrays("labels").items()},
        sums=arrays("sums"),
        shape=source.shape,
        class_names=meta["class_names"],
        dropped=meta.get("dropped", 0),  # caches from before images could be left out have none of the two
        notes=meta.get("notes", []),
    )
