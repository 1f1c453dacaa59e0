"""A small VGG-style network: the plain baseline."""

from torch import Tensor, nn
from torch.nn import functional

from litlab.nn import check_sizes


class VGG(nn.Module):
    """Three blocks of two 3 x 3 convolutions with max-pooling, and two hidden linear layers.

    The style of Simonyan & Zisserman 2015 (arXiv:1409.1556) with batch normalisation, as PyTorch guides use it for
    CIFAR. The baseline that ``WhitenedCNN`` is measured against.

    Args:
        channels: Channels of the images.
        num_classes: Number of logits.
        widths: Channels of the three blocks.
        hidden: Units of the two hidden linear layers.
        dropout: Probability of dropping a hidden unit.

    Raises:
        ValueError: If a size is below 1.
    """

    def __init__(
        self,
        channels: int = 3,
        num_classes: int = 10,
        widths: tuple[int, int, int] = (64, 128, 256),
        hidden: tuple[int, int] = (1024, 512),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_sizes(channels=channels, num_classes=num_classes, widths=widths, hidden=hidden)
        blocks: list[nn.Module] = []
        for width in widths:
            blocks += [
                nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]  # fmt: skip
            channels = width
        self.features = nn.Sequential(*blocks)
        self.head = nn.Sequential(
            nn.Linear(channels * 16, hidden[0]), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(hidden[0], hidden[1]), nn.ReLU(inplace=True), nn.Dropout(dropout),
            nn.Linear(hidden[1], num_classes),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (batch, classes) from images of shape (batch, channel, height, width)."""
        features = self.features(images)
        if features.shape[2:] != (4, 4):  # images of another size than 32 x 32
            features = functional.adaptive_avg_pool2d(features, 4)
        return self.head(features.flatten(1))
