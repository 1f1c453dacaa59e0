"""Images, and masks that say the class of each pixel."""

import base64
import io
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torchmetrics.functional import jaccard_index

from litlab.data import ImageData, Target, TensorSpec, move_images
from litlab.data.files import check_columns
from litlab.data.generated import make_shapes
from litlab.data.images.decode import Resize, fit_picture, open_image
from litlab.data.images.files import Listing, find_images, list_table
from litlab.data.images.serving import ImageServing
from litlab.data.store import fill_cache
from litlab.errors import UserError, first_line


@dataclass(frozen=True)
class PixelClasses(Target):
    """The class of each pixel, from files of masks.

    Args:
        values: The values of a mask's pixels, one for each class, ascending.
        size: Height and width that all masks get.
        resize: How a mask of another size is fitted, like its image.
    """

    model, guess = "Segmenter", "most frequent class"
    values: list[int]
    size: list[int]
    resize: Resize | None

    @property
    def names(self) -> list[str]:
        return [*map(str, self.values)]

    def read(self, file: str) -> np.ndarray:
        """Return a mask, uint8 (height, width)."""
        mask, (height, width) = open_mask(file), self.size
        if mask.mode not in ("1", "L", "P"):
            raise UserError(f"{file}: it has colours; save one class number per pixel")
        if self.resize is None and mask.size != (width, height):
            raise UserError(f"{file}: it has another size; set --data.image_size '[256, 256]'")
        picture = fit_picture(mask, (height, width), self.resize, Image.Resampling.NEAREST)
        return np.asarray(picture, np.uint8)

    def encode(self, rows: pd.DataFrame) -> np.ndarray:
        """Return the class of each pixel, uint8 (row, height, width)."""
        masks = np.stack([self.read(file) for file in rows[self.columns[0]]])
        return np.searchsorted(self.values, masks).astype(np.uint8)

    def spec(self) -> TensorSpec:
        what = "probability of each class of a pixel, in the order of values"
        return TensorSpec("mask", "float32", ("batch", len(self.values), *self.size), what)

    def draw(self, probabilities: np.ndarray) -> bytes:
        """Return a PNG, of probabilities (class, height, width)."""
        mask = np.array(self.values, np.uint8)[probabilities.argmax(0)]
        Image.fromarray(mask).save(stream := io.BytesIO(), "PNG")
        return stream.getvalue()

    def answer(self, output: np.ndarray) -> dict[str, Any]:
        return {"mask": base64.b64encode(self.draw(output)).decode()}

    def score_guess(self, train: np.ndarray, test: np.ndarray) -> dict[str, dict[str, float]]:
        count, truth = len(self.values), torch.from_numpy(test)
        guess = torch.full_like(truth, int(np.bincount(train.ravel()).argmax()))
        score = jaccard_index(guess, truth, "multiclass", num_classes=count)
        return {self.guess: {"test/iou": score.item()}}


class MaskServing(ImageServing):
    """As of images. An export names it, which brings `PixelClasses` along."""


class Masks(ImageData):
    """Images in PATH/images, and a mask of the same name, a PNG, for each in PATH/masks; or a table
    with columns of both.

    The model gets float32 images, (batch, channel, height, width), and the class of each pixel,
    int64 (batch, height, width). What `augment` moves is moved in both.

    `target` is the column of the masks, or a name for them. Generated images are drawn shapes with
    noise.
    """

    kind, own_files, output_suffixes = "shapes", ("folder", "csv"), ("",)
    target_kind = "text"
    is_own: Any = True  # drawn shapes are files, too

    @cached_property
    def listing(self) -> Listing:
        """The images, and the mask of each."""
        root = self.path
        if self.dataset == "csv":
            cells, root = self.read_cells(root, "data.path"), root.parent
            check_columns(cells, str(self.path), {self.targets[0]: "set data.target"})
        else:
            if self.generated:
                root = self.cache_dir / "shapes"
                fill_cache(root, draw_shapes)
            names = [file.relative_to(root) for file in find_images(root / "images")]
            masks = [Path("masks", f"{name.stem}.png") for name in names]
            cells = pd.DataFrame({self.file_column: names, self.targets[0]: masks})
        masks = [root / str(name) for name in cells[self.targets[0]]]
        lacking = [mask for mask in masks if not mask.is_file()]
        if lacking or not masks:
            raise UserError(f"data.path: {[*lacking, root / 'images'][0]} does not exist; add it")
        cells[self.targets[0]] = list(map(str, masks))
        return list_table(cells, str(self.path), root, self.file_column)

    def fit_target(self, rows: pd.DataFrame, *args: Any, **kwargs: Any) -> PixelClasses:
        masks, size = rows[self.targets[0]], self.settings.image_size
        first = open_mask(masks.iloc[0])
        height, width = size or (first.height, first.width)
        resize = self.settings.resize if size else None
        target = PixelClasses(self.targets, [], [height, width], resize)
        values = set().union(*(np.unique(target.read(file)).tolist() for file in masks))
        return replace(target, values=sorted(values))

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        moved = super().transform(batch, epoch)
        if "target" not in batch:
            return moved
        images, masks = moved
        if epoch is not None:
            size, index = (images.shape[2], images.shape[3]), batch["index"]
            masks = move_images(masks[:, None], index, self.augment, size, self.seed, epoch)[:, 0]
        return images, masks.long()

    def serving(self) -> MaskServing:
        return MaskServing(self.served)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        names = [Path(file).stem for file in self.row_names["file"]]
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise UserError(f"--input: several images are called {name}; rename them")
        for name, probabilities in zip(names, torch.cat(outputs), strict=True):
            mask = self.facts.target.draw(probabilities.cpu().numpy())
            Path(path, f"{name}.png").write_bytes(mask)


def open_mask(file: str) -> Image.Image:
    try:
        with open_image(Path(file)) as opened:
            return opened.copy()
    except OSError as error:
        raise UserError(f"{file}: it can't be read ({first_line(error)}); replace it") from error


def draw_shapes(folder: Path, count: int = 600) -> None:
    """Write what `make_shapes` draws."""
    for kind, pictures in zip(("images", "masks"), make_shapes(count), strict=True):
        (folder / kind).mkdir()
        for number, picture in enumerate(pictures):
            Image.fromarray(picture).save(folder / kind / f"{number:03}.png")
