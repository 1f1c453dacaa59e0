"""Images as a trained model knows them, and as a deployed one takes them: uint8, of the size it was trained on."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from litlab.data.images.augment import centre, normalise
from litlab.data.images.decode import ImageFormat, Mode, Resize
from litlab.data.metadata import ClassMetadata
from litlab.data.serving import BATCH, Serving, TensorSpec, class_outputs


@dataclass(frozen=True)
class ImageMetadata(ClassMetadata):
    """Metadata of images.

    Args:
        mean: What is subtracted from each channel, of pixels from 0 to 1.
        std: What each channel is divided by.
        image_shape: Channels, height and width that the model gets.
        mode: Mode that images are converted to.
        resize: How images of another shape are fitted.
        depth: Bits of images with 16 bits per pixel, see `ImageFormat`.
        generated: Whether the images are made up.
    """

    fixed: ClassVar[tuple[str, ...]] = ("class_names", "image_shape")
    mean: list[float]
    std: list[float]
    image_shape: tuple[int, int, int]
    mode: Mode
    resize: Resize
    depth: int
    generated: bool

    @property
    def form(self) -> ImageFormat:
        """The format that any image gets."""
        _, height, width = self.image_shape
        return ImageFormat(height, width, self.mode, self.resize, convert=True, depth=self.depth)


class ImageServing(Serving):
    """Normalises uint8 images, (batch, channel, height, width).

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "images"
    mean: Tensor
    std: Tensor

    def __init__(self, metadata: ImageMetadata) -> None:
        channels, height, width = metadata.image_shape
        what = f"images, {'grey' if channels == 1 else 'red, green, blue'}, from 0 to 255"
        image = TensorSpec("image", "uint8", (BATCH, channels, height, width), what)
        super().__init__([image], class_outputs(metadata.class_names))
        self.metadata = metadata
        self.register_buffer("mean", torch.tensor(metadata.mean))
        self.register_buffer("std", torch.tensor(metadata.std))

    def encode(self, *raw: Tensor) -> Tensor:
        """Return normalised images, float32 of the same shape."""
        return normalise(raw[0], self.mean, self.std)

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the images of a batch, without the border that training images may have."""
        return (centre(batch["image"], *self.metadata.image_shape[1:]),)

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        return batch["label"]

    def facts(self) -> dict[str, Any]:
        """Return the class names, and how an image of another shape or depth is fitted."""
        known = self.metadata
        return {"class_names": known.class_names, "mode": known.mode, "resize": known.resize, "depth": known.depth}

    def example(self) -> tuple[Tensor, ...]:
        """Return a slope from dark to light, and its mirror image."""
        channels, height, width = self.metadata.image_shape
        slope = torch.linspace(0, 255, width).to(torch.uint8).expand(channels, height, width)
        return (torch.stack([slope, slope.flip(2)]),)
