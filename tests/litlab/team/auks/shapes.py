"""A kind of data of the team's own: grey images, and masks that say which pixels are of a shape."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import StackDataset

from litlab.data import ExperimentData, Metadata, Sample, Serving, TensorSpec
from litlab.errors import UserError


@dataclass(frozen=True)
class ShapesMetadata(Metadata):
    fixed = ("size",)
    size: list[int]  # height and width


def read_images(files: list[Any]) -> Any:
    images = [np.asarray(Image.open(file).convert("L"))[None] for file in files]
    return torch.tensor(np.stack(images))


def draw(mask: np.ndarray) -> bytes:
    Image.fromarray(np.uint8(255 * (mask[0] > 0.5))).save(stream := io.BytesIO(), "PNG")
    return stream.getvalue()


class ShapesServing(Serving):
    kind, field, metadata_type = "images", "image", ShapesMetadata

    def __init__(self, metadata: ShapesMetadata) -> None:
        shape = ("batch", 1, *metadata.size)
        image = TensorSpec("image", "uint8", shape, "grey images")
        super().__init__([image], [TensorSpec("mask", "float32", shape, "probabilities")])
        self.metadata = metadata

    def encode(self, *raw: Tensor) -> Tensor:
        return raw[0].float() / 255

    def read(self, sent: Any) -> Sample:
        try:
            file = sent if isinstance(sent, bytes) else base64.b64decode(sent)
            images = read_images([io.BytesIO(file)])
        except (OSError, TypeError, ValueError) as error:
            raise UserError("image: it can't be read; send a file in base64") from error
        if list(images.shape[2:]) != self.metadata.size:
            raise UserError(f"image: it is of another size; send one of {self.metadata.size}")
        return Sample([images.numpy()])

    def sample_request(self) -> bytes:
        return draw(np.zeros([1, *self.metadata.size]))

    def answer(self, outputs: Any, context: Any) -> dict[str, Any]:
        return {"mask": base64.b64encode(draw(outputs["mask"][0])).decode()}


class Shapes(ExperimentData):
    """PATH/SPLIT/images/*.png, and masks by the same names in PATH/SPLIT/masks."""

    metadata_type, output_suffixes = ShapesMetadata, ("",)  # predictions are a folder

    def __init__(self, path: str, **loader: Any) -> None:
        super().__init__(**loader)
        self.choose_source("folder", path)

    def open(self, stage: str | None) -> ShapesMetadata:
        folders = {split: self.path / split / "images" for split in ("train", "val", "test")}
        self.files = {split: sorted(folder.glob("*.png")) for split, folder in folders.items()}
        self.sizes = {split: len(files) for split, files in self.files.items() if files}
        return ShapesMetadata(list(read_images(self.files["train"][:1]).shape[2:]))

    def samples(self, split: str) -> StackDataset:
        files = self.files[split]
        masks = read_images([file.parents[1] / "masks" / file.name for file in files]) // 255
        return StackDataset(image=read_images(files), target=masks)

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        if epoch is not None:  # half of the training images are mirrored, and their masks
            flip = torch.rand(len(batch["image"]), 1, 1, 1, device=batch["image"].device) < 0.5
            batch = {name: torch.where(flip, part.flip(3), part) for name, part in batch.items()}
        images = self.serving().encode(batch["image"])
        return (images, batch["target"]) if "target" in batch else images

    def serving(self) -> ShapesServing:
        return ShapesServing(self.metadata)

    def open_input(self, source: str) -> StackDataset:
        self.inputs = sorted(Path(source).glob("*.png"))
        return StackDataset(image=read_images(self.inputs))

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        for file, mask in zip(self.inputs, torch.cat(outputs), strict=True):
            Path(path, file.name).write_bytes(draw(mask.numpy()))
