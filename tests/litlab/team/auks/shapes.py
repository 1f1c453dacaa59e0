"""A kind of data of the team's own: grey images, and masks that say which pixels are of a shape."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from torchmetrics.classification import BinaryJaccardIndex

from litlab.data import ExperimentData, Metadata, Sample, Serving, TensorSpec
from litlab.errors import UserError
from litlab.tasks import ExperimentModule


@dataclass(frozen=True)
class ShapesMetadata(Metadata):
    """What a checkpoint knows of them: the images' height and width."""

    fixed = ("size",)
    size: list[int]


def read_image(source: Any, size: list[int]) -> np.ndarray:
    image = np.asarray(Image.open(source).convert("L"))
    if list(image.shape) != size:
        raise UserError(f"image: it has {image.shape} pixels; send one of {size}")
    return image


class Pairs(Dataset):
    """Images and their masks, uint8 (sample, 1, height, width)."""

    def __init__(self, **parts: Tensor) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts["image"])

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        return {name: part[index] for name, part in self.parts.items()}


class ShapesServing(Serving):
    """Images, and of each pixel the probability that it is of a shape."""

    kind, field, metadata_type = "images", "image", ShapesMetadata

    def __init__(self, metadata: ShapesMetadata) -> None:
        shape = ("batch", 1, *metadata.size)
        inputs = [TensorSpec("image", "uint8", shape, "grey images")]
        super().__init__(inputs, [TensorSpec("mask", "float32", shape, "probabilities")])
        self.metadata = metadata

    def encode(self, *raw: Tensor) -> Tensor:
        return raw[0].float() / 255

    def read(self, sent: Any) -> Sample:
        try:
            file = sent if isinstance(sent, bytes) else base64.b64decode(sent)
            image = read_image(io.BytesIO(file), self.metadata.size)
        except (OSError, TypeError, ValueError) as error:
            raise UserError("image: it can't be read; send an image in base64") from error
        return Sample([image[None, None]])

    def sample_request(self) -> bytes:
        return draw(np.zeros(self.metadata.size))

    def answer(self, outputs: Any, context: Any) -> dict[str, Any]:
        return {"mask": base64.b64encode(draw(outputs["mask"][0, 0])).decode()}


def draw(mask: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.uint8(255 * (mask > 0.5))).save(stream, "PNG")
    return stream.getvalue()


class Shapes(ExperimentData):
    """PATH/SPLIT/images/*.png, and masks by the same names in PATH/SPLIT/masks."""

    metadata_type, output_suffixes = ShapesMetadata, ("",)

    def __init__(self, path: str, **loader: Any) -> None:
        super().__init__(**loader)
        self.dataset, self.path = "folder", Path(path)

    def open(self, stage: str | None) -> ShapesMetadata:
        self.files = {
            split: sorted((self.path / split / "images").glob("*.png"))
            for split in ("train", "val", "test")
        }
        self.sizes = {split: len(files) for split, files in self.files.items() if files}
        with Image.open(self.files["train"][0]) as image:
            return ShapesMetadata([image.height, image.width])

    def load(self, files: list[Path]) -> Tensor:
        return torch.tensor(np.stack([read_image(file, self.metadata.size) for file in files]))[:, None]

    def samples(self, split: str) -> Pairs:
        files = self.files[split]
        masks = self.load([file.parents[1] / "masks" / file.name for file in files])
        return Pairs(image=self.load(files), target=masks // 255)

    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        batch = dict(batch)
        if epoch is not None:  # half of the training images are mirrored, and their masks too
            flip = torch.rand(len(batch["image"]), 1, 1, 1, device=batch["image"].device) < 0.5
            batch = {name: torch.where(flip, part.flip(3), part) for name, part in batch.items()}
        images = self.serving().encode(batch["image"])
        return (images, batch["target"]) if "target" in batch else images

    def serving(self) -> ShapesServing:
        return ShapesServing(self.metadata)

    def open_input(self, source: str) -> Pairs:
        self.predicted = sorted(Path(source).glob("*.png"))
        return Pairs(image=self.load(self.predicted))

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        for file, mask in zip(self.predicted, torch.cat(outputs), strict=True):
            (Path(path) / file.name).write_bytes(draw(mask[0].numpy()))


class Segmenter(ExperimentModule):
    """Two convolutions that say of each pixel whether it is of a shape.

    Args:
        width: Channels between them.
        **training: As of `ExperimentModule`.
    """

    def __init__(self, width: int = 8, **training: Any) -> None:
        super().__init__(**training)
        self.network = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.Conv2d(width, 1, 5, padding=2)
        )
        self.set_metrics({"iou": BinaryJaccardIndex()})

    def training_outputs(self, batch: Any) -> Any:
        images, masks = batch
        logits = self(images)
        loss = F.binary_cross_entropy_with_logits(logits, masks.float())
        return loss, logits.detach().sigmoid(), masks

    def evaluate(self, metrics: Any, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        loss = F.binary_cross_entropy_with_logits(outputs, target.float())
        metrics.add(loss, outputs.sigmoid(), target)
        return {"loss": loss}

    def predict_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self(batch).sigmoid()
