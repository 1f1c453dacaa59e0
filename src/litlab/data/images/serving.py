"""Images as a deployed model takes them: uint8, of the size that it was trained on."""

from typing import Any

import torch
from torch import Tensor

from litlab.data.images.augment import centre, normalise
from litlab.data.images.metadata import ImageMetadata
from litlab.data.serving import BATCH, Serving, TensorSpec, class_outputs


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
        order = {1: "grey", 3: "red, green, blue"}.get(channels, f"{channels} channels")
        what = f"images, {order}, from 0 to 255"
        super().__init__(
            [TensorSpec("image", "uint8", (BATCH, channels, height, width), what)], class_outputs(metadata.class_names)
        )
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
        """Return the labels."""
        return batch["label"]

    def facts(self) -> dict[str, Any]:
        """Return the class names, and how an image of another shape is fitted."""
        known = self.metadata
        return {"class_names": known.class_names, "mode": known.mode, "resize": known.resize}

    def example(self) -> tuple[Tensor, ...]:
        """Return a slope from dark to light, and its mirror image."""
        channels, height, width = self.metadata.image_shape
        slope = torch.linspace(0, 255, width).to(torch.uint8).expand(channels, height, width)
        return (torch.stack([slope, slope.flip(2)]),)
