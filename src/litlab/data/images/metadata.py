"""What is known of images once they are read."""

from dataclasses import dataclass
from typing import Any

from litlab.data.images.decode import Mode, Resize
from litlab.data.metadata import ClassMetadata
from litlab.errors import UserError


@dataclass(frozen=True)
class ImageMetadata(ClassMetadata):
    """Metadata of images.

    Args:
        mean: Mean of each channel over the training images, of pixels from 0 to 1.
        std: Standard deviation of each channel, likewise.
        image_shape: Channels, height and width that the model gets.
        mode: Mode that images are converted to.
        resize: How images of another shape are fitted.
        generated: Whether the images are made up.
    """

    mean: list[float]
    std: list[float]
    image_shape: tuple[int, int, int]
    mode: Mode
    resize: Resize
    generated: bool

    def check_same(self, here: Any) -> None:
        """Refuse images of other classes or another shape.

        Raises:
            UserError: The classes, their order or the shape differ.
        """
        super().check_same(here)
        if self.image_shape != here.image_shape:
            _, height, width = self.image_shape
            raise UserError(
                f"data: the checkpoint was trained on images of {' x '.join(map(str, self.image_shape))}, the data has "
                f"{' x '.join(map(str, here.image_shape))}; add --data.image_size '[{height}, {width}]' "
                f"--data.mode {self.mode}"
            )
