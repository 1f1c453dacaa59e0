"""Images."""

from functools import partial
from typing import Any

from torch import nn

from litlab.errors import UserError
from litlab.tasks import Classifier


class SmallCNN(Classifier):
    """Classify images with one convolution.

    Args:
        width: Channels of the convolution.
        num_classes: Number of classes. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out.
        **settings: As of `Classifier`.
    """

    def __init__(
        self,
        width: int = 8,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        **settings: Any,
    ) -> None:
        if width < 4:
            raise UserError(f"model.width: {width} is not valid; it must be 4 or more")
        if image_shape is None or num_classes is None:
            raise UserError(
                "model: image_shape or num_classes is not set, and the data does not give it"
            )
        super().__init__(
            partial(_network, width, num_classes, image_shape[0]),
            num_classes=num_classes,
            image_shape=image_shape,
            **settings,
        )


def _network(width: int, num_classes: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 4, stride=4, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )


class MNASNet(nn.Module):
    """A network that has the name of one of torchvision's.

    Args:
        width: Channels.
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.layers(images))
