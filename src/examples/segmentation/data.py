"""Images, and masks that say the class of each pixel."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import StackDataset

from litlab.data import ExperimentData, Metadata, Sample, Serving, TensorSpec, uniform
from litlab.data.split import SPLITS, Split
from litlab.errors import UserError
from litlab.types import HalfOpenUnitInterval

GENERATED = 600
make_dataset: Any = StackDataset  # of tensors, which are no Datasets for a type checker


@dataclass(frozen=True)
class MasksMetadata(Metadata):
    """Metadata of images and masks.

    Args:
        image_shape: (3, height, width).
        values: The values of a mask's pixels, one for each class, ascending.
    """

    fixed = ("image_shape", "values")
    image_shape: tuple[int, int, int]
    values: list[int]

    @property
    def num_classes(self) -> int:
        return len(self.values)


class MasksServing(Serving):
    """Takes uint8 images, (batch, 3, height, width); gives probabilities of the classes."""

    kind, field, metadata_type = "images", "image", MasksMetadata

    def __init__(self, metadata: MasksMetadata) -> None:
        shape = metadata.image_shape
        what = "probability of each class of a pixel, in the order of values"
        outputs = TensorSpec("mask", "float32", ("batch", metadata.num_classes, *shape[1:]), what)
        super().__init__([TensorSpec("image", "uint8", ("batch", *shape), "images")], [outputs])
        self.metadata = metadata

    def encode(self, *raw: Tensor) -> Tensor:
        return raw[0].float() / 255 - 0.5

    def read(self, sent: Any) -> Sample:
        try:
            content = sent if isinstance(sent, bytes) else base64.b64decode(sent)
            image = read_image(io.BytesIO(content))
        except (OSError, TypeError, ValueError) as error:
            raise UserError("image: it can't be read; send a file, or one in base64") from error
        shape = self.metadata.image_shape
        if image.shape != shape:
            raise UserError(f"image: it is of {image.shape}, not {shape}; send one of that size")
        return Sample([image[None]])

    def sample_request(self) -> bytes:
        return draw_mask(np.zeros(self.metadata.image_shape[1:], np.uint8))

    def answer(self, outputs: Any, context: Any) -> dict[str, Any]:
        return {"mask": base64.b64encode(draw_mask(self.choose(outputs["mask"][0]))).decode()}

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """Return a mask, uint8 (height, width), of probabilities (class, height, width)."""
        return np.array(self.metadata.values, np.uint8)[probabilities.argmax(0)]


class Masks(ExperimentData):
    """Images in PATH/images, and a mask of the same name, a PNG, for each in PATH/masks.

    The model gets float32 images, (batch, 3, height, width), and the class of each pixel,
    int64 (batch, height, width). Half of the training images are mirrored, with their masks.

    Args:
        path: The folder; null: drawn shapes with noise.
        val_fraction: Fraction of the images kept for validation.
        test_fraction: Fraction of them kept for the test.
        **loader: As of `ExperimentData`.
    """

    item, kind, metadata_type = "images", "shapes", MasksMetadata
    output_suffixes = ("",)  # predictions are a folder

    def __init__(
        self,
        path: str | None = None,
        *,
        val_fraction: HalfOpenUnitInterval = 0.1,
        test_fraction: HalfOpenUnitInterval = 0.2,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        self.save_hyperparameters(logger=False)
        self.choose_source("generated" if path is None else "folder", path)
        self.split = Split(val=val_fraction, test=test_fraction)

    @property
    def description(self) -> str:
        """The images in one line."""
        shape = " x ".join(map(str, self.known.image_shape))
        return self.describe(f"images of {shape}, masks of {self.known.num_classes} classes")

    def open(self, stage: str | None) -> MasksMetadata:
        images, masks = make_shapes() if self.generated else read_folder(self.path)
        values = np.unique(masks)
        targets = np.searchsorted(values, masks)
        split = self.split.divide(pd.DataFrame(index=range(len(images))))
        self.parts = {
            name: {"image": images[split == name], "target": targets[split == name]}
            for name in SPLITS
            if (split == name).any()
        }
        self.sizes = {name: len(part["image"]) for name, part in self.parts.items()}
        return MasksMetadata(images.shape[1:], values.tolist())

    def samples(self, split: str) -> StackDataset:
        parts = {name: torch.from_numpy(values) for name, values in self.parts[split].items()}
        return make_dataset(**parts, number=torch.arange(self.sizes[split]))

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        images, target = self.serving().encode(batch["image"]), batch.get("target")
        if target is None:
            return images
        if epoch is not None:
            (draws,) = uniform(batch["number"], self.seed, epoch, "flip")
            flip = draws < 0.5
            images = torch.where(flip[:, None, None, None], images.flip(3), images)
            target = torch.where(flip[:, None, None], target.flip(2), target)
        return images, target

    def serving(self) -> MasksServing:
        return MasksServing(self.metadata)

    def open_input(self, source: str) -> StackDataset:
        self.inputs = sorted(file for file in Path(source).iterdir() if file.is_file())
        samples = [self.serving().read(file.read_bytes()).inputs[0] for file in self.inputs]
        return make_dataset(image=torch.from_numpy(np.concatenate(samples)))

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        for file, probabilities in zip(self.inputs, torch.cat(outputs).cpu().numpy(), strict=True):
            mask = draw_mask(self.serving().choose(probabilities))
            Path(path, f"{file.stem}.png").write_bytes(mask)

    def baselines(self) -> dict[str, dict[str, float]]:
        """Score the most frequent class of a pixel; and that of the pixel's brightness alone."""
        train, test = self.parts["train"], self.parts["test"]
        count = self.known.num_classes
        levels = [part["image"].mean(1).astype(int) // 8 for part in (train, test)]
        table = np.zeros((32, count))
        np.add.at(table, (levels[0], train["target"]), 1)
        guesses = {
            "most frequent class": np.full_like(test["target"], table.sum(0).argmax()),
            "brightness of the pixel": table.argmax(1)[levels[1]],
        }
        return {name: {"test/iou": score(mask, test["target"])} for name, mask in guesses.items()}


def score(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean over the classes of intersection over union."""
    pairs = [(predicted == number, truth == number) for number in np.unique(truth)]
    return float(np.mean([(mine & true).sum() / (mine | true).sum() for mine, true in pairs]))


def read_image(file: Any) -> np.ndarray:
    """Return an image, uint8 (3, height, width)."""
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


def draw_mask(mask: np.ndarray) -> bytes:
    """Return a PNG of a mask, uint8 (height, width)."""
    stream = io.BytesIO()
    Image.fromarray(mask).save(stream, "PNG")
    return stream.getvalue()


def read_folder(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (image, 3, height, width), and masks, (image, height, width).

    Raises:
        UserError: There are none, one has no mask, or they are of several sizes.
    """
    files = sorted(file for file in (root / "images").glob("*") if file.is_file())
    if not files:
        raise UserError(f"data.path: there are no images in {root}/images; put some there")
    images, masks = [], []
    for file in files:
        mask = root / "masks" / f"{file.stem}.png"
        if not mask.is_file():
            raise UserError(f"data.path: {file} has no mask {mask}; add it")
        images.append(read_image(file))
        with Image.open(mask) as picture:
            masks.append(np.asarray(picture))
        if not images[0].shape[1:] == images[-1].shape[1:] == masks[-1].shape:
            raise UserError(f"data.path: {file} or its mask is of another size; resize all to one")
    return np.stack(images), np.stack(masks)


def make_shapes() -> tuple[np.ndarray, np.ndarray]:
    """Draw discs (255) and boxes (128) in noise, as bright as each other, so that a pixel alone
    does not tell them apart.
    """
    random, (y, x) = np.random.default_rng(0), np.mgrid[:48, :48]
    masks = np.zeros((GENERATED, 48, 48), np.uint8)
    for mask in masks:
        for value in random.permutation([128, 255]):
            dy, dx = abs(y - random.uniform(8, 40)), abs(x - random.uniform(8, 40))
            size = random.uniform(4, 9)
            inside = np.hypot(dy, dx) < size if value == 255 else np.maximum(dy, dx) < 0.9 * size
            mask[inside] = value
    images = 90 + 70 * (masks > 0) + random.normal(0, 40, masks.shape)
    grey = images.clip(0, 255).astype(np.uint8)
    return grey[:, None].repeat(3, axis=1), masks
