"""Pictures made by arithmetic, for machines without data: they look nothing like photographs, but must be learned.

A class is a pair of a shape and a texture: a square with upright stripes, a ring with a checker-board. Everything
else is drawn at random and says nothing about the class: place, size, tilt, colours, which of object and background
is the brighter, their contrast, a background of soft waves, two distracting objects without texture, noise. A part of
the pictures is so faint that nobody can tell. All classes are the same after mirroring, and a crop by some pixels or
a small cutout leaves enough to see.
"""

import math

import torch
from torch import Tensor

SHAPES = ("disc", "square", "triangle", "cross", "ring", "diamond", "bar", "heart", "frame", "star")
TEXTURES = ("plain", "level", "upright", "checker", "dots", "slanted", "rings", "gradient", "fine", "rays")
_CHUNK = 500  # images at a time: their intermediate results stay in the processor's cache


def generated_class_names(num_classes: int) -> list[str]:
    """Name the classes that `generated_images` makes, such as "upright square"; from 2 to 100.

    Raises:
        ValueError: The number of classes is not from 2 to 100.
    """
    return [f"{TEXTURES[t]} {SHAPES[s]}" for s, t in _pairs(num_classes)]


def _pairs(num_classes: int) -> list[tuple[int, int]]:
    """(shape, texture) of each class: about as many shapes as textures, so that neither alone tells the class."""
    if not 2 <= num_classes <= len(SHAPES) * len(TEXTURES):
        raise ValueError(f"num_classes: {num_classes} is not from 2 to {len(SHAPES) * len(TEXTURES)}")
    textures = math.isqrt(num_classes - 1) + 1
    return [(i // textures, i % textures) for i in range(num_classes)]


def _shape(number: int, x: Tensor, y: Tensor) -> Tensor:
    """Where a shape of about unit size is: positive inside; the scale of the values is that of x and y."""
    radius = (x * x + y * y).sqrt()
    largest = torch.maximum(x.abs(), y.abs())
    match SHAPES[number]:
        case "disc":
            return 0.95 - radius
        case "square":
            return 0.85 - largest
        case "triangle":
            return torch.minimum(0.7 - y, (y + 1.1 - 1.8 * x.abs()) * 0.5)
        case "cross":
            return torch.minimum(1 - largest, 0.38 - torch.minimum(x.abs(), y.abs()))
        case "ring":
            return 0.27 - (radius - 0.72).abs()
        case "diamond":
            return (1.15 - x.abs() - y.abs()) * 0.7
        case "bar":
            return torch.minimum(1 - x.abs(), 0.42 - y.abs())
        case "heart":
            return (0.75 - (x * x + (y + 0.65 * x.abs().sqrt() - 0.2).square())) * 0.5
        case "frame":
            return 0.22 - (largest - 0.72).abs()
        case _:  # star
            return 0.72 + 0.3 * torch.cos(5 * torch.atan2(x, -y)) - radius


def _texture(number: int, x: Tensor, y: Tensor, phase: Tensor) -> Tensor:
    """Return a pattern of values in [-1, 1] with a few periods per object."""
    k = 7.0
    match TEXTURES[number]:
        case "plain":
            return torch.zeros_like(x)
        case "level":
            return torch.sin(k * y + phase)
        case "upright":
            return torch.sin(k * x + phase)
        case "checker":
            return (2.5 * torch.sin(0.8 * k * x + phase) * torch.sin(0.8 * k * y + phase)).clamp(-1, 1)
        case "dots":
            return 1 - 2 * (torch.sin(0.5 * k * x + phase) * torch.sin(0.5 * k * y + phase)).abs()
        case "slanted":
            return torch.sin(0.8 * k * (x.abs() + y) + phase)  # both diagonals: the same after mirroring
        case "rings":
            return torch.sin(1.3 * k * (x * x + y * y).sqrt() + phase)
        case "gradient":
            return y.clamp(-1, 1)
        case "fine":
            return torch.sin(2 * k * y + phase)
        case _:  # rays
            return torch.cos(6 * torch.atan2(y, x))


def generated_images(
    count: int, num_classes: int = 10, shape: tuple[int, int, int] = (3, 32, 32), seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Make images and their labels; the same for the same arguments.

    Args:
        count: Number of images.
        num_classes: Number of classes, from 2 to 100; all come equally often.
        shape: (channel, height, width).
        seed: Seed of everything.

    Returns:
        uint8 images (count, channel, height, width) and int64 labels (count,), in random order.

    Raises:
        ValueError: The number of classes is not from 2 to 100.
    """
    pairs = _pairs(num_classes)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % num_classes
    images = torch.empty((count, *shape), dtype=torch.uint8)
    for start in range(0, count, _CHUNK):
        # In the order of the classes, such that each formula is worked out for its own images only.
        part = labels[start : start + _CHUNK].sort().values
        labels[start : start + _CHUNK] = part
        images[start : start + _CHUNK] = _paint(part, pairs, shape, generator)
    order = torch.randperm(count, generator=generator)
    return images[order], labels[order]


def _paint(
    labels: Tensor, pairs: list[tuple[int, int]], shape: tuple[int, int, int], generator: torch.Generator
) -> Tensor:
    """Paint one image per label; labels are sorted."""
    count, (channels, height, width) = len(labels), shape

    def uniform(low: float, high: float, *size: int) -> Tensor:
        return low + (high - low) * torch.rand((count, *(size or (1, 1))), generator=generator)

    # Coordinates run from -1 to 1 along the shorter side.
    side = min(height, width)
    rows = ((torch.arange(height) + 0.5) * 2 - height)[:, None] / side
    columns = ((torch.arange(width) + 0.5) * 2 - width)[None, :] / side

    def frame(small: float, large: float, reach: float) -> tuple[Tensor, Tensor, Tensor]:
        """Coordinates of an object at a random place, tilted by up to 12 degrees."""
        size, tilt = uniform(small, large), uniform(-0.2, 0.2)
        y = (rows - uniform(-1, 1) * (height / side - 1 + reach)) / size
        x = (columns - uniform(-1, 1) * (width / side - 1 + reach)) / size
        return x * tilt.cos() + y * tilt.sin(), y * tilt.cos() - x * tilt.sin(), size

    x, y, size = frame(0.35, 0.65, 0.4)
    phase = uniform(0, 2 * math.pi)
    inside, pattern = torch.empty(count, height, width), torch.empty(count, height, width)
    for label in labels.unique().tolist():
        own = slice(int((labels < label).sum()), int((labels <= label).sum()))
        inside[own] = _shape(pairs[label][0], x[own], y[own])
        pattern[own] = _texture(pairs[label][1], x[own], y[own], phase[own])
    mask = (inside * size * side / 2 + 0.5).clamp_(0, 1)  # soft over one pixel

    waves = torch.sin(rows * uniform(0.5, 4) + columns * uniform(-4, 4) + uniform(0, 6.3)) * uniform(0, 0.25)
    clutter = waves
    for number in torch.randint(len(SHAPES), (2,), generator=generator).tolist():
        cx, cy, csize = frame(0.12, 0.3, 0.9)
        spot = (_shape(number, cx, cy) * csize * side / 2 + 0.5).clamp_(0, 1)
        clutter = clutter + spot * uniform(-0.5, 0.5)

    contrast, relief = uniform(0.0, 0.5), uniform(0.04, 0.35)
    sign = torch.where(uniform(-1, 1) > 0, 1.0, -1.0)
    noise = uniform(0.04, 0.2)
    images = torch.empty(count, channels, height, width)
    for channel in range(channels):
        # Colours of object, background and pattern differ from channel to channel, their brightness does not.
        base = uniform(0.3, 0.7)
        step = sign * contrast + uniform(-0.2, 0.2) * (channels > 1)
        inner = step + pattern * (relief * uniform(0.6, 1))
        outer = clutter * uniform(0.5, 1)
        images[:, channel] = base - step / 2 + torch.lerp(outer, inner, mask)
    images += torch.randn(images.shape, generator=generator) * noise[:, None]
    return (images * 255).round_().clamp_(0, 255).to(torch.uint8)
