"""A small U-Net."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.errors import UserError
from litlab.types import PositiveInt


class UNet(nn.Module):
    """Convolutions at halved and halved again sizes, and back (Ronneberger et al. 2015,
    arXiv:1505.04597).

    Args:
        width: Channels at full size; they double where the size is halved.
        depth: How often it is halved.
        num_classes: Classes of a pixel. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out.
    """

    def __init__(
        self,
        width: PositiveInt = 16,
        depth: PositiveInt = 2,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        if num_classes is None or image_shape is None:
            raise UserError("model.network: num_classes or image_shape is not set; use Masks")
        widths = [width * 2**level for level in range(depth + 1)]
        inputs = [image_shape[0], *widths[:-1]]
        self.down = nn.ModuleList(map(make_block, inputs, widths))
        self.up = nn.ModuleList(
            make_block(above + below, above)
            for above, below in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, (batch, class, height, width), of images (batch, channel,
        height, width).
        """
        first, *further = self.down
        sizes = [first(images)]
        for block in further:
            sizes.append(block(F.max_pool2d(sizes[-1], 2)))
        x = sizes.pop()
        for block in self.up:
            beside = sizes.pop()
            x = F.interpolate(x, size=beside.shape[2:], mode="nearest")
            x = block(torch.cat([beside, x], dim=1))
        return self.head(x)


def make_block(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convolutions, each with a norm."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)
