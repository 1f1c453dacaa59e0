"""Random changes to training images: whole batches at once, and yet each image its own draw."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from litlab.data.images.draws import draws, uniform
from litlab.errors import UserError

Draw = Callable[[str], Tensor]


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

    crop: int = 0
    flip: Literal["none", "random", "alternating"] = "none"
    cutout: int = 0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    steps: list[nn.Module] = field(default_factory=list)

    def check(self, image_shape: tuple[int, int, int]) -> None:
        """Refuse options that do not suit images of a shape (channel, height, width).

        Raises:
            UserError: A number is out of range for such images, or grey ones are to change their saturation.
        """
        channels, height, width = image_shape
        side = min(height, width)
        limits = {"crop": side - 1, "cutout": side, "brightness": 1, "contrast": 1, "saturation": 1}
        for name, limit in limits.items():
            value = getattr(self, name)
            if not 0 <= value <= limit:
                raise UserError(
                    f"data.augment.{name}: {value} is out of range for images of {height} x {width} pixels; "
                    f"choose a value from 0 to {limit}"
                )
        if self.saturation and channels != 3:
            raise UserError("data.augment.saturation: the images are grey; set it to 0, or --data.mode RGB")


def _choose(draw: Tensor, choices: int) -> Tensor:
    """Map 24-bit draws to integers in [0, choices)."""
    return (draw * choices) >> 24


def _factor(draw: Tensor, spread: float) -> Tensor:
    """Map 24-bit draws to factors in [1 - spread, 1 + spread), of shape (batch, 1, 1, 1)."""
    return (1 + spread * (draw.float() * 2**-23 - 1))[:, None, None, None]


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
    return (red * 0.299).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _jitter(images: Tensor, augment: Augment, draw: dict[str, Tensor]) -> Tensor:
    """Change brightness, contrast and saturation of float images in [0, 255], in place."""
    if augment.brightness:
        images.mul_(_factor(draw["brightness"], augment.brightness)).clamp_(0, 255)
    if augment.contrast:
        grey = _grey(images).mean((2, 3), keepdim=True)
        images.sub_(grey).mul_(_factor(draw["contrast"], augment.contrast)).add_(grey).clamp_(0, 255)
    if augment.saturation:
        grey = _grey(images)
        images.sub_(grey).mul_(_factor(draw["saturation"], augment.saturation)).add_(grey).clamp_(0, 255)
    return images


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
    height, width = size
    alternating = augment.flip == "alternating"
    draw = draws(index, seed, epoch, fixed=("flip",) if alternating else ())
    if augment.crop:
        if images.shape[2:] == size:
            images = reflect_pad(images, augment.crop)
        shifts = 2 * augment.crop + 1
        images = _crop(images, _choose(draw["crop_y"], shifts), _choose(draw["crop_x"], shifts), height, width)
    if augment.flip != "none":
        flip = (_choose(draw["flip"], 2) + (epoch if alternating else 0)) % 2
        # Of each image and its mirror image pick one: 5 times quicker than `torch.where`, and no wait for a GPU.
        place = torch.arange(len(images), device=images.device) + len(images) * flip
        images = torch.cat((images, images.flip(3))).index_select(0, place)
    if augment.brightness or augment.contrast or augment.saturation:
        images = _jitter(images.float(), augment, draw)
    if augment.steps:
        images = images.float() / 255
        for number, step in enumerate(augment.steps):
            images = _apply_step(step, images, partial(_draw_for_step, index, seed, epoch, number))
        images = images * 255
    images = encode(images)
    if augment.cutout:
        # Multiplying is several times quicker than `masked_fill_`; 0 is the mean colour.
        rows, columns = (
            _find_inside(draw[stream], length, augment.cutout)
            for stream, length in (("cutout_y", height), ("cutout_x", width))
        )
        images.mul_((1 - rows[:, :, None] * columns[:, None, :])[:, None])
    return images


def _find_inside(draw: Tensor, length: int, side: int) -> Tensor:
    """Return where a piece at a random place along an axis is: 1 inside, 0 outside, of shape (batch, length)."""
    corner = _choose(draw, length - side + 1)[:, None]
    place = torch.arange(length, device=draw.device)
    return ((place >= corner) & (place < corner + side)).float()


def _draw_for_step(index: Tensor, seed: int, epoch: int, number: int, name: str) -> Tensor:
    return uniform(index, seed, epoch, f"{number} {name}")[:, None, None, None]


def _apply_step(step: nn.Module, images: Tensor, draw: Draw) -> Tensor:
    step.to(images.device)  # where it has tensors of its own
    changed = step(images, draw) if isinstance(step, AugmentStep) else step(images)
    if not isinstance(changed, Tensor) or changed.shape != images.shape:
        kind = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise UserError(
            f"data.augment.steps: {type(step).__name__} returns {kind} for images of shape {tuple(images.shape)}; use "
            "a step that keeps the shape"
        )
    return changed
