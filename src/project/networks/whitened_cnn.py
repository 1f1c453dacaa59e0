"""The network that learns CIFAR fastest here: whitened patches, three wide blocks, identity
initialisation.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.types import PositiveFloat


class WhitenedCNN(nn.Module):
    """A small CNN for small images, after airbench (Jordan 2024, arXiv:2404.00498) and Page's
    ResNet-9 (2018).

    A frozen 2 x 2 convolution whitens the image patches, three blocks of two 3 x 3 convolutions
    follow, each halving the image by max-pooling, then a global maximum and a linear layer.
    Convolutions start as the identity, batch norms have no scale and a short memory, and the logits
    are scaled down, all of which makes very high learning rates safe. Weights and images are kept
    channels_last, the layout that CPUs and GPUs convolve fastest.

    Args:
        channels: Channels of the images.
        num_classes: Number of logits.
        widths: Channels of the three blocks.
        logit_scale: Factor on the logits.
    """

    def __init__(
        self,
        channels: int = 3,
        num_classes: int = 10,
        widths: tuple[int, int, int] = (32, 128, 256),
        logit_scale: PositiveFloat = 1 / 9,
    ) -> None:
        super().__init__()
        patch = channels * 4
        # Buffers: whitening is measured, not trained. It is the identity until `whiten` has seen
        # images.
        self.filters: Tensor
        self.whitened: Tensor
        self.register_buffer(
            "filters", torch.eye(patch).repeat(2, 1).view(2 * patch, channels, 2, 2)
        )
        self.register_buffer("whitened", torch.tensor(False))
        blocks = [
            _Block(before, after)
            for before, after in zip((2 * patch, *widths), widths, strict=False)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], num_classes, bias=False)
        self.logit_scale = logit_scale
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    @torch.no_grad()
    def whiten(self, images: Tensor, epsilon: float = 5e-4) -> None:
        """Set the first convolution to the principal components of the images' patches, scaled to
        unit variance.

        Args:
            images: Normalised images, shape (batch, channel, height, width); some hundred are
                enough.
            epsilon: Added to the variances, so that nearly constant directions are not blown up.
        """
        patches = (
            F.unfold(images.float(), kernel_size=2).transpose(1, 2).flatten(0, 1).cpu().double()
        )  # MPS has no float64
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (
            (directions / (variances + epsilon).sqrt()).T.flip(0).view(-1, *self.filters.shape[1:])
        )
        self.filters.copy_(torch.cat([filters, -filters]))
        self.whitened.fill_(True)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (batch, classes) from images of shape (batch, channel, height, width), 16
        x 16 or larger.
        """
        features = F.gelu(
            F.conv2d(images.contiguous(memory_format=torch.channels_last), self.filters)
        )
        # Not amax: compiled for a CPU, its gradient in bfloat16 is NaN (torch 2.15).
        return (
            self.head(F.adaptive_max_pool2d(self.blocks(features), 1).flatten(1)) * self.logit_scale
        )


class _Block(nn.Module):
    """Two convolutions; the image is halved after the first one, so that the second costs a
    quarter.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _convolution(before, after), _norm(after)
        self.conv2, self.norm2 = _convolution(after, after), _norm(after)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


def _convolution(before: int, after: int) -> nn.Conv2d:
    convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
    # The other filters keep torch's initialisation
    nn.init.dirac_(convolution.weight.data[: min(before, after)])
    return convolution


def _norm(channels: int) -> nn.BatchNorm2d:
    # 0.4: short trainings need statistics of the latest weights
    norm = nn.BatchNorm2d(channels, momentum=0.4)
    norm.weight.requires_grad = False
    return norm
