"""A small VGG-style network: the plain baseline."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from litlab.types import PositiveInt
from project.networks.layers import spread_rates


class VGG(nn.Module):
    """Blocks of two 3 x 3 convolutions with max-pooling, then hidden linear layers.

    The style of Simonyan & Zisserman 2015 (arXiv:1409.1556) with batch normalisation, as PyTorch
    guides use it for CIFAR. It is the baseline for ``WhitenedCNN``.

    Args:
        channels: Channels of the images.
        num_classes: Number of logits.
        widths: Channels of each block. Every block halves height and width.
        hidden: Units of each hidden linear layer; [] means a linear head.
        norm: Normalisation after each convolution, a class that is called with the number of
            channels, such as torch.nn.BatchNorm2d, torch.nn.InstanceNorm2d, torch.nn.Identity
            (none), or GroupNorm and LayerNorm of project.networks.layers.
        activation: Activation after each hidden layer, a class such as torch.nn.GELU.
        block_dropout: Probability of dropping a channel of an image after each block (Tompson et
            al. 2015, arXiv:1411.4280): one number, or one for each block, such as [0.1, 0.2, 0].
        head_dropout: Probability of dropping a hidden unit: one number, or one for each hidden
            layer.

    Raises:
        ValueError: If a list of dropouts is not as long as that of the layers.
    """

    def __init__(
        self,
        channels: PositiveInt = 3,
        num_classes: PositiveInt = 10,
        widths: tuple[PositiveInt, ...] = (64, 128, 256),
        hidden: tuple[PositiveInt, ...] = (1024, 512),
        norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
        activation: Callable[[], nn.Module] = nn.ReLU,
        block_dropout: float | list[float] = 0.0,
        head_dropout: float | list[float] = 0.5,
    ) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        rates = spread_rates("block_dropout", block_dropout, len(widths))
        for width, rate in zip(widths, rates, strict=True):
            blocks += [
                nn.Conv2d(channels, width, 3, padding=1), norm(width), activation(),
                nn.Conv2d(width, width, 3, padding=1), norm(width), activation(),
                nn.Sequential(nn.MaxPool2d(2), nn.Dropout2d(rate)),
            ]  # fmt: skip
            channels = width
        self.features = nn.Sequential(*blocks)
        head: list[nn.Module] = []
        units = channels * 16
        rates = spread_rates("head_dropout", head_dropout, len(hidden))
        for width, rate in zip(hidden, rates, strict=True):
            head += [nn.Linear(units, width), activation(), nn.Dropout(rate)]
            units = width
        self.head = nn.Sequential(*head, nn.Linear(units, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (batch, classes) from images of shape (batch, channel, height, width)."""
        features = self.features(images)
        if features.shape[2:] != (4, 4):  # images of another size than 32 x 32
            features = functional.adaptive_avg_pool2d(features, 4)
        return self.head(features.flatten(1))
