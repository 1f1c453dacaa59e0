"""Images."""

from functools import partial
from typing import Any

from torch import nn

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
        network = partial(_network, width, num_classes, image_shape)
        super().__init__(network, num_classes=num_classes, image_shape=image_shape, **settings)


def _network(width: int, num_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(image_shape[0], width, 4, stride=4, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, num_classes),
    )
