"""Images as a deployed model takes them: uint8, of the size it was trained on."""

import base64
import io
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.data.images.decode import ImageMetadata, decode
from litlab.data.serving import BATCH, Sample, Serving, TensorSpec
from litlab.errors import UserError

MOST_PIXELS = 40_000_000  # of an image that is sent


class ImageServing(Serving):
    """Normalises uint8 images, (batch, channel, height, width).

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind, field, metadata_type = "images", "image", ImageMetadata
    scale: Tensor
    shift: Tensor

    def __init__(self, metadata: ImageMetadata) -> None:
        colours = "grey" if metadata.image_shape[0] == 1 else "red, green, blue"
        meaning = f"images, {colours}, from 0 to 255"
        image = TensorSpec("image", "uint8", (BATCH, *metadata.image_shape), meaning)
        super().__init__([image], [metadata.target.spec()])
        self.metadata = metadata
        # (pixel / 255 - mean) / std as one product and one sum
        mean, std = torch.tensor([metadata.mean, metadata.std])[..., None, None]
        self.register_numbers(torch.float32, scale=1 / (255 * std), shift=-mean / std)

    def encode(self, *raw: Tensor) -> Tensor:
        """Return images of mean 0 and deviation 1 per channel, float32 of the same shape."""
        # A copy, as float32 images would be changed in place for the caller
        return raw[0].to(torch.float32, copy=True).mul_(self.scale).add_(self.shift)

    def raw(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the images of a batch, without the border that training images may have."""
        _, height, width = self.metadata.image_shape
        images = batch["image"]
        border = (images.shape[2] - height) // 2
        return (images[:, :, border : border + height, border : border + width],)

    def read(self, sent: Any) -> Sample:
        """Read an image file of any size: its bytes, or these in base64."""
        from PIL import Image

        if not isinstance(sent, bytes):
            try:
                # A web page sends data:image/png;base64,...
                sent = base64.b64decode(sent.rpartition(",")[2], validate=True)
            except (AttributeError, ValueError):
                raise UserError("image: it is not base64; encode the file's bytes") from None
        # A small file may unpack to gigabytes. Pillow warns from its limit on, and refuses twice
        # as many pixels
        Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2
        with warnings.catch_warnings(action="ignore"):
            image = decode(sent, self.metadata)
        if isinstance(image, str):
            raise UserError(f"image: it can't be read ({image}); send another file")
        return Sample([image[None]])

    def sample_request(self) -> bytes:
        """Return a slope from dark to light."""
        from PIL import Image

        _, height, width = self.metadata.image_shape
        slope = np.linspace(0, 255, height * width, dtype=np.uint8).reshape(height, width)
        stream = io.BytesIO()
        Image.fromarray(slope).save(stream, "PNG")
        return stream.getvalue()
