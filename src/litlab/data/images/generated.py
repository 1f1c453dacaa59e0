"""Pictures made by arithmetic, for machines without data: they look nothing like photographs, but must be learned.

A class is a pair of a shape (a disc or star, whole or hollow) and a texture (waves across and along it). Everything
else is drawn at random and says nothing of the class: place, size, phase, colours, which of object and background is
the brighter, the background's own waves, noise. Some are too faint for anybody to tell. Mirrored they stay in
their class.
"""

import math

import numpy as np
import torch
from torch import Tensor

COUNTS = {"train": 10_000, "test": 2_000}
_SHAPES = [(lobes, hollow) for lobes in (0, 3, 2, 5, 4) for hollow in (0, 1)]
_TEXTURES = [(0, 0), (3, 0), (0, 3), (3, 3), (0, 6), (6, 0), (6, 6), (3, 6), (6, 3), (9, 0)]  # radians per radius
_CHUNK = 500  # images at a time: their intermediate results stay in the processor's cache


def name_classes(count: int) -> list[str]:
    """Name the classes that `make_images` makes, from 2 to 100."""
    return [
        f"{'hollow ' * hollow}{f'star of {lobes}' if lobes else 'disc'}, {across} x {along} waves"
        for (lobes, hollow), (across, along) in _pair(count)
    ]


def _pair(count: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return shape and texture of each class: about as many shapes as textures, so that neither alone tells it."""
    textures = math.isqrt(count - 1) + 1
    return [(_SHAPES[number // textures], _TEXTURES[number % textures]) for number in range(count)]


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
    parameters = torch.tensor([[*form, *waves] for form, waves in _pair(num_classes)])[labels]
    images = [_paint(some.float(), shape, generator) for some in parameters.split(_CHUNK)]
    return torch.cat(images).numpy(), labels.numpy(), np.repeat(list(COUNTS), list(COUNTS.values()))


def _paint(parameters: Tensor, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Paint an image for each row of lobes, hollow, and waves across and along."""
    channels, height, width = shape
    lobes, hollow, across, along = parameters.view(-1, 4, 1, 1, 1).unbind(1)

    def draw(low: float, high: float, values: int = 1) -> Tensor:
        return low + (high - low) * torch.rand((len(parameters), values, 1, 1), generator=generator)

    # Coordinates run from -1 to 1 along the shorter side; those of the object from its centre, in radii.
    side = min(height, width)
    rows = (((torch.arange(height) + 0.5) * 2 - height) / side)[:, None]
    columns = ((torch.arange(width) + 0.5) * 2 - width) / side
    size = draw(0.45, 0.75)
    y = (rows - draw(-0.5, 0.5) * height / side) / size
    x = (columns - draw(-0.5, 0.5) * width / side) / size
    radius = (x * x + y * y).sqrt()
    outline = 0.8 + 0.25 * (lobes > 0) * torch.cos(lobes * torch.atan2(x, y))
    inside = torch.minimum(outline - radius, torch.where(hollow > 0, radius - outline + 0.35, 1.0))
    mask = (inside * size * side / 2 + 0.5).clamp(0, 1)  # soft over one pixel

    # Colours of object, background and pattern differ from channel to channel, their brightness does not.
    texture = torch.cos(across * x + draw(0, 6.3)) * torch.cos(along * y + draw(0, 6.3)) * (across + along > 0)
    waves = torch.sin(rows * draw(0.5, 8) + columns * draw(-8, 8) + draw(0, 6.3)) * draw(0, 0.25)
    step = draw(0.1, 0.6) * draw(-1, 1).sign() + draw(-0.2, 0.2, channels) * (channels > 1)
    images = draw(0.3, 0.7, channels) - step / 2 + torch.lerp(waves, step + texture * draw(0.1, 0.4, channels), mask)
    images += torch.randn(images.shape, generator=generator) * draw(0.03, 0.18)
    return (images * 255).round_().clamp_(0, 255).to(torch.uint8)
