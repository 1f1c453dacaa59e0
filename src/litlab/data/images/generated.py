"""Pictures made by arithmetic, for machines without data: they look nothing like photographs, but must be learned.

A class is a pair of an outline (a disc or a star) and a texture (waves across and along it), and keeps both in the
mirror. All else is drawn at random and says nothing of the class: place, size, phase, colours, noise.
"""

import math

import numpy as np
import torch
from torch import Tensor

COUNTS = {"train": 10_000, "test": 2_000}


def make_images(num_classes: int, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make images; the same for the same arguments.

    Args:
        num_classes: Number of classes, from 2 to 100; all come equally often.
        shape: (channel, height, width).

    Returns:
        uint8 images (image, channel, height, width), int64 labels (image,), and their split, str (image,).
    """
    count, generator = sum(COUNTS.values()), torch.Generator().manual_seed(0)
    labels = torch.randperm(count, generator=generator) % num_classes
    textures = math.ceil(num_classes**0.5)  # about as many as outlines, so that neither alone tells the class
    images = [_paint(some // textures, some % textures, shape, generator) for some in labels.split(500)]
    return torch.cat(images).numpy(), labels.numpy(), np.repeat(list(COUNTS), list(COUNTS.values()))


def _paint(outline: Tensor, texture: Tensor, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Paint images of some outlines and textures, both int64 of shape (image,)."""
    channels, height, width = shape
    outline, texture = outline.view(-1, 1, 1, 1), texture.view(-1, 1, 1, 1)

    def draw(low: float, high: float, values: int = 1) -> Tensor:
        return low + (high - low) * torch.rand((len(outline), values, 1, 1), generator=generator)

    # Coordinates from the centre of the object, in radii.
    size = draw(0.4, 0.7)
    y = (torch.linspace(-1, 1, height)[:, None] - draw(-0.5, 0.5)) / size
    x = (torch.linspace(-1, 1, width) - draw(-0.5, 0.5)) / size
    edge = 0.8 + 0.25 * (outline > 0) * torch.cos((outline + 1) * torch.atan2(x, y))

    # Colours differ from channel to channel; which of object and background is the brighter is left to chance.
    waves = torch.cos(3 * (texture % 4) * x + draw(0, 6.3)) * torch.cos(3 * (texture // 4) * y + draw(0, 6.3))
    colours = draw(-0.4, 0.4, channels) + draw(0.1, 0.4, channels) * waves
    images = draw(0.3, 0.7, channels) + torch.where(torch.hypot(x, y) < edge, colours, 0)
    images += torch.randn(images.shape, generator=generator) * draw(0.03, 0.2)
    return (images * 255).round_().clamp_(0, 255).to(torch.uint8)
