"""Images as a deployed model takes them: uint8, of the size it was trained on."""

import math
from typing import Any

import torch
from torch import Tensor

from litlab.data.images.decode import ImageMetadata
from litlab.data.serving import BATCH, Serving, TensorSpec


class ImageServing(Serving):
    """Normalises uint8 images, (batch, channel, height, width).

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "images"
    scale: Tensor
    shift: Tensor

    def __init__(self, metadata: ImageMetadata) -> None:
        what = (
            f"images, {'grey' if metadata.image_shape[0] == 1 else 'red, green, blue'}, from 0 to "
            "255"
        )
        image = TensorSpec("image", "uint8", (BATCH, *metadata.image_shape), what)
        super().__init__([image], [metadata.target.spec()])
        self.metadata = metadata
        mean, std = torch.tensor([metadata.mean, metadata.std])[..., None, None]
        self.register_buffer("scale", 1 / (255 * std))
        self.register_buffer("shift", -mean / std)

    def encode(self, *raw: Tensor) -> Tensor:
        """Return images of mean 0 and deviation 1 per channel, float32 of the same shape."""
        return raw[0].to(torch.float32, copy=True).mul_(self.scale).add_(self.shift)

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the images of a batch, without the border that training images may have."""
        _, height, width = self.metadata.image_shape
        images = batch["image"]
        border = (images.shape[2] - height) // 2
        return (images[:, :, border : border + height, border : border + width],)

    def target(self, batch: dict[str, Tensor]) -> Tensor:
        return batch["target"]

    def facts(self) -> dict[str, Any]:
        """Return the metadata: it says how an image of another shape or depth is fitted."""
        return {"class_names": self.metadata.class_names, **self.metadata.state_dict()}

    def unit(self) -> Tensor:
        return torch.tensor(self.metadata.target_std or 1.0)

    def example(self) -> tuple[Tensor, ...]:
        """Return a slope from dark to light, of which the first image is the darker half."""
        shape = 2, *self.metadata.image_shape
        return (torch.linspace(0, 255, math.prod(shape)).to(torch.uint8).view(shape),)
