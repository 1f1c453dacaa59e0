"""A multi-layer perceptron for images: what a first guide to PyTorch trains on FashionMNIST."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from litlab.types import PositiveInt
from project.networks.layers import spread_rates


class MLP(nn.Module):
    """Flattened images through linear layers. Without a hidden layer it is logistic regression.

    Args:
        hidden_sizes: Units of each hidden layer.
        activation: Activation after each hidden layer, a class such as torch.nn.ReLU.
        norm: Normalisation before each activation, a class that is called with the number of units,
            such as torch.nn.BatchNorm1d or torch.nn.LayerNorm; torch.nn.Identity for none.
        dropout: Probability of dropping a hidden unit: one number, or one for each hidden layer,
            such as [0.3, 0.2].
        image_shape: Channels, height and width of an image. Taken from the data when left out.
        num_classes: Number of logits. Taken from the data when left out.

    Raises:
        ValueError: If a size is neither set nor provided by the data, or dropout has the wrong
            length.
    """

    def __init__(
        self,
        hidden_sizes: Sequence[PositiveInt] = (512, 512),
        activation: Callable[[], nn.Module] = nn.ReLU,
        norm: Callable[[int], nn.Module] = nn.Identity,
        dropout: float | list[float] = 0.0,
        image_shape: tuple[int, int, int] | None = None,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        if image_shape is None or num_classes is None:
            raise ValueError(
                "image_shape and num_classes are not set, and the data does not "
                "provide them; set them"
            )
        layers: list[nn.Module] = [nn.Flatten()]
        units = math.prod(image_shape)
        rates = spread_rates("dropout", dropout, len(hidden_sizes))
        for size, rate in zip(hidden_sizes, rates, strict=True):
            layers += [nn.Linear(units, size), norm(size), activation(), nn.Dropout(rate)]
            units = size
        self.layers = nn.Sequential(*layers, nn.Linear(units, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (batch, classes) from images of shape (batch, channel, height, width)."""
        return self.layers(images)
