"""Random changes to training images: whole batches at once, and yet each image its own draw."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from litlab.data.images.draws import uniform
from litlab.errors import UserError
from litlab.types import ClosedUnitInterval, NonNegativeInt

Draw = Callable[[str], Tensor]
_DRAWN = ("crop_y", "crop_x", "flip", "cutout_y", "cutout_x", "brightness", "contrast", "saturation")


class AugmentStep(nn.Module, ABC):
    """A random change to a batch of training images, of a class that a config names in ``data.augment.steps``.

    It takes random numbers from `draw` alone. They depend only on (seed, epoch, number of the image, name of the draw):
    neither the batch nor the number of processes matters, and a resumed run repeats them exactly.
    """

    @abstractmethod
    def forward(self, images: Tensor, draw: Draw) -> Tensor:
        """Change a batch, on the device it is on.

        Args:
            images: float32 from 0 to 1, shape (batch, channel, height, width).
            draw: Called with a name, it returns a random number for each image, uniform in [0, 1), float32 of shape
                (batch, 1, 1, 1). The same name gives the same numbers again.

        Returns:
            The changed images, of the same shape.
        """


@dataclass(frozen=True)
class Augment:
    """What happens at random to each training image. Nothing, by default.

    Args:
        crop: Shift each image by up to this many pixels each way; the border is filled by reflection.
        flip: Mirror left-right: `random` in half of all cases, `alternating` at random in the first epoch and then
            in turns, so that two epochs in a row show each image both ways (Jordan 2024, arXiv:2404.00498).
        cutout: Blank a square of this side in pixels at a random place (DeVries and Taylor 2017, arXiv:1708.04552).
        brightness: Multiply the image by a factor within 1 plus or minus this.
        contrast: Scale the distance to the image's mean grey by a factor within 1 plus or minus this.
        saturation: Scale the distance of each pixel to its grey by a factor within 1 plus or minus this.
        steps: Further changes, in turn, before normalisation and cutout: `AugmentStep`s of your own, which draw for
            each image, or modules such as those of torchvision.transforms.v2, which draw once for a batch.
    """

    crop: NonNegativeInt = 0
    flip: Literal["none", "random", "alternating"] = "none"
    cutout: NonNegativeInt = 0
    brightness: ClosedUnitInterval = 0.0
    contrast: ClosedUnitInterval = 0.0
    saturation: ClosedUnitInterval = 0.0
    steps: list[nn.Module] = field(default_factory=list)

    def check(self, height: int, width: int) -> None:
        """Refuse what does not fit into images of so many pixels.

        Raises:
            UserError: Crop or cutout is too large.
        """
        if max(self.crop + 1, self.cutout) > min(height, width):
            raise UserError(f"data.augment: crop or cutout is too large for images of {height} x {width} pixels")


def reflect_pad(images: Tensor, pad: int) -> Tensor:
    """Pad (batch, channel, height, width) by reflection, by less than height and width.

    Unlike `torch.nn.functional.pad`, any dtype; the result is contiguous.
    """
    for dim in (2, 3):
        size = images.shape[dim]
        place = torch.arange(-pad, size + pad).abs()
        place = torch.where(place >= size, 2 * (size - 1) - place, place)
        images = images.index_select(dim, place.to(images.device))
    return images


def centre(images: Tensor, height: int, width: int) -> Tensor:
    """Cut the middle of (batch, channel, height, width) out of padded images."""
    top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
    return images[:, :, top : top + height, left : left + width]


def _crop(images: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Cut a window out of each image, its corner at (y, x): one `index_select` of rows over the whole batch."""
    batch, channels, padded_height, padded_width = images.shape
    device = images.device
    plane = torch.arange(batch * channels, device=device).view(batch, channels, 1) * (padded_height * padded_width)
    row = torch.arange(height, device=device) * padded_width
    start = plane + row + (y * padded_width + x).view(batch, 1, 1)
    # Row k of the unfolded view is the `width` bytes from byte k on, so a start picks any row at any offset.
    rows = images.view(-1).unfold(0, width, 1).index_select(0, start.view(-1))
    return rows.view(batch, channels, height, width)


def _grey(images: Tensor) -> Tensor:
    """Brightness of each pixel (ITU-R BT.601), (batch, 1, height, width)."""
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def normalise(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bring uint8 or [0, 255] float images to mean 0 and deviation 1 per channel.

    Args:
        images: (batch, channel, height, width).
        mean: Mean of each channel on a scale of 0 to 1, shape (channel,).
        std: Standard deviation of each channel on the same scale, shape (channel,).

    Returns:
        float32 of shape (batch, channel, height, width).
    """
    scale = (1 / (255 * std)).view(-1, 1, 1)
    shift = (-mean / std).view(-1, 1, 1)
    return images.to(torch.float32, copy=True).mul_(scale).add_(shift)


def augment_batch(
    images: Tensor,
    index: Tensor,
    augment: Augment,
    size: tuple[int, int],
    encode: Callable[[Tensor], Tensor],
    seed: int,
    epoch: int,
) -> Tensor:
    """Crop, flip, colour, normalise and cut out a batch, on the device it is on.

    Args:
        images: uint8 of shape (batch, channel, height, width); height and width may already include the reflected
            border of `augment.crop` pixels, which saves making it for every batch.
        index: Number of each sample in the training split, int64 of shape (batch,).
        augment: What to do.
        size: (height, width) of the result.
        encode: Normalises images from 0 to 255.
        seed: Seed of the draws.
        epoch: Number of the epoch, from 0.

    Returns:
        float32 of shape (batch, channel, height, width), normalised.
    """
    draw: dict[str, Tensor] = dict(zip(_DRAWN, uniform(index, seed, epoch, *_DRAWN), strict=True))
    height, width = size
    if augment.crop:
        if images.shape[2:] == size:
            images = reflect_pad(images, augment.crop)
        shifts = 2 * augment.crop + 1
        y, x = (draw["crop_y"] * shifts).long(), (draw["crop_x"] * shifts).long()
        images = _crop(images, y, x, height, width)
    if augment.flip != "none":
        flip = (draw["flip"] < 0.5).long()
        if augment.flip == "alternating":
            flip = ((uniform(index, seed, 0, "flip")[0] < 0.5) + epoch) % 2
        # Of each image and its mirror image pick one: 5 times quicker than `torch.where`, and no wait for a GPU.
        place = torch.arange(len(images), device=images.device) + len(images) * flip
        images = torch.cat((images, images.flip(3))).index_select(0, place)

    # Each colour setting moves images to or from a target: black, their mean grey, or the grey of each pixel.
    targets = {
        "brightness": torch.zeros_like,
        "contrast": lambda images: _grey(images).mean((2, 3), keepdim=True),
        "saturation": _grey,
    }
    for name, find_target in targets.items():
        strength = getattr(augment, name)
        if strength:
            images = images.float()
            factor = 1 + strength * (2 * draw[name] - 1).view(-1, 1, 1, 1)
            images = torch.lerp(find_target(images), images, factor).clamp_(0, 255)

    if augment.steps:
        images = images.float() / 255
        for number, step in enumerate(augment.steps):
            images = _apply_step(step, images, partial(_draw_for_step, index, seed, epoch, number))
        images = images * 255
    images = encode(images)
    if augment.cutout:
        rows, columns = (
            _find_inside(draw["cutout_y"], height, augment.cutout),
            _find_inside(draw["cutout_x"], width, augment.cutout),
        )
        # Multiplying is several times quicker than `masked_fill_`; 0 is the mean colour.
        images.mul_(1 - rows[:, None, :, None] * columns[:, None, None, :])
    return images


def _find_inside(draw: Tensor, length: int, side: int) -> Tensor:
    """Return where a piece at a random place along an axis is: 1 inside, 0 outside, of shape (batch, length)."""
    corner = (draw * (length - side + 1)).long()[:, None]
    place = torch.arange(length, device=draw.device)
    return ((place >= corner) & (place < corner + side)).float()


def _draw_for_step(index: Tensor, seed: int, epoch: int, number: int, name: str) -> Tensor:
    return uniform(index, seed, epoch, f"{number} {name}").view(-1, 1, 1, 1)


def _apply_step(step: nn.Module, images: Tensor, draw: Draw) -> Tensor:
    step.to(images.device)  # where it has tensors of its own
    changed = step(images, draw) if isinstance(step, AugmentStep) else step(images)
    if changed.shape != images.shape:
        raise UserError(
            f"data.augment.steps: {type(step).__name__} returns {tuple(changed.shape)} for images of shape "
            f"{tuple(images.shape)}; use a step that keeps the shape"
        )
    return changed
