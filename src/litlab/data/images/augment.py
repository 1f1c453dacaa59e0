"""Random changes to training images: whole batches at once, and yet each image its own draw."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from litlab.data.draws import uniform
from litlab.data.images.decode import ImageMetadata
from litlab.data.images.serving import ImageServing
from litlab.errors import UserError
from litlab.types import NonNegativeFloat, NonNegativeInt

_DRAWN = ("cutout_y", "cutout_x", "brightness", "contrast")
_GREY = (0.2989, 0.587, 0.114)  # shares of red, green and blue, as in torchvision


@dataclass(frozen=True)
class Augment:
    """What happens at random to each training image. Nothing, by default.

    Args:
        crop: Shift each image by up to this many pixels each way; the border is filled by
            reflection.
        flip: Mirror left-right: `random` in half of all cases, `alternating` at random in the first
            epoch and then in turns, so that two epochs in a row show each image both ways (Jordan
            2024, arXiv:2404.00498).
        cutout: Blank a square of this side in pixels at a random place (DeVries and Taylor 2017,
            arXiv:1708.04552).
        brightness: Multiply all pixels of an image by a factor from 1 - brightness, 0 at least, to
            1 + brightness.
        contrast: Then multiply the distance of each pixel from the image's mean grey by such a
            factor. Both are those of torchvision's ColorJitter.
    """

    crop: NonNegativeInt = 0
    flip: Literal["none", "random", "alternating"] = "none"
    cutout: NonNegativeInt = 0
    brightness: NonNegativeFloat = 0.0
    contrast: NonNegativeFloat = 0.0


def check_augment(augment: Augment, form: ImageMetadata) -> None:
    """Refuse a cutout that would leave nothing of an image, and a crop that no border is wide
    enough for.
    """
    least = min(form.image_shape[1:])
    for name in ("crop", "cutout"):
        pixels = getattr(augment, name)
        if pixels >= least:
            raise UserError(
                f"data.augment.{name}: {pixels} must be less than the {least} pixels of the "
                "images; lower it"
            )


def augment_batch(
    images: Tensor, index: Tensor, augment: Augment, serving: ImageServing, seed: int, epoch: int
) -> Tensor:
    """Crop, flip, change colours, normalise and cut out a batch, on the device it is on.

    Args:
        images: uint8 of shape (batch, channel, height, width); height and width may already include
            the reflected border of `augment.crop` pixels, which saves making it for every batch.
        index: Number of each sample in the training split, int64 of shape (batch,).
        augment: What to do.
        serving: Knows the shape of the result, and normalises images.
        seed: Seed of the draws.
        epoch: Number of the epoch, from 0.

    Returns:
        float32 of shape (batch, channel, height, width), normalised.
    """
    # A draw depends on its name, and not on which others are used: what one change does to an image
    # is the same whether or not another one is switched on
    cutout_y, cutout_x, brightness, contrast = uniform(index, seed, epoch, *_DRAWN)
    _, height, width = serving.metadata.image_shape
    images = move_images(images, index, augment, (height, width), seed, epoch)
    if augment.brightness or augment.contrast:
        brightness = _factors(brightness, augment.brightness)
        images = _adjust(images, brightness, _factors(contrast, augment.contrast))
    # Cutout comes last: it blanks with the mean, which is 0 only once images are normalised
    images = serving.encode(images)
    if augment.cutout:
        rows = _mark(cutout_y, height, augment.cutout)
        columns = _mark(cutout_x, width, augment.cutout)
        # Quicker than `masked_fill_`
        images.mul_(~(rows[:, None, :, None] & columns[:, None, None]))
    return images


def move_images(
    images: Tensor, index: Tensor, augment: Augment, size: tuple[int, int], seed: int, epoch: int
) -> Tensor:
    """Crop and flip a batch; what is true of each pixel, such as a mask, in the same way.

    Args:
        images: As of `augment_batch`.
        index: As of `augment_batch`.
        augment: What to do.
        size: Height and width of the result.
        seed: Seed of the draws.
        epoch: Number of the epoch, from 0.

    Returns:
        uint8 of shape (batch, channel, height, width).
    """
    if augment.crop:
        # Images in memory have the border already, those that were just decoded have not
        if images.shape[2:] == size:
            images = reflect_pad(images, augment.crop)
        shifts = 2 * augment.crop + 1
        y, x = (uniform(index, seed, epoch, "crop_y", "crop_x") * shifts).long()
        images = _crop(images, y, x, *size)

    if augment.flip != "none":
        # A new draw in each epoch; or that of epoch 0, turned over in every other one
        drawn_in, turned = (0, epoch) if augment.flip == "alternating" else (epoch, 0)
        is_mirrored = ((uniform(index, seed, drawn_in, "flip")[0] < 0.5) + turned) % 2
        # Of each image and its mirror image pick one: 5 times quicker than `torch.where`, and no
        # wait for a GPU.
        picked = torch.arange(len(images), device=images.device) + len(images) * is_mirrored
        images = torch.cat((images, images.flip(3))).index_select(0, picked)
    return images


def _mark(draws: Tensor, size: int, length: int) -> Tensor:
    """Mark so many places in a row of `size`, at random: bool of shape (draw, size)."""
    # A quotient of 0 is that of the places from `first` on, but before `first + length`
    first = (draws * (size - length + 1)).long()[:, None]
    return (torch.arange(size, device=draws.device) - first) // length == 0


def _factors(draws: Tensor, strength: float) -> Tensor:
    """Return factors from 1 - strength, 0 at least, to 1 + strength: (batch, 1, 1, 1)."""
    low = max(0.0, 1 - strength)
    return (low + draws * (1 + strength - low))[:, None, None, None]


def _adjust(images: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
    """Return images, float32 from 0 to 255, after each got its own factors."""
    # The mean grey of each image, (batch, 1, 1, 1); from there to the pixels, and beyond them where
    # the factor is above 1, is the change of contrast
    images = images.float().mul_(brightness).clamp_(0, 255)
    grey = images.mean(dim=(2, 3), keepdim=True)
    if grey.shape[1] == 3:
        grey = (grey * grey.new_tensor(_GREY)[:, None, None]).sum(dim=1, keepdim=True)
    return grey.lerp(images, contrast).clamp_(0, 255)


def reflect_pad(images: Tensor, pad: int) -> Tensor:
    """Pad uint8 images, (batch, channel, height, width), by reflection, by less than height and
    width.
    """
    # On CUDA torch reflects floating-point numbers alone
    return functional.pad(images.float(), (pad, pad, pad, pad), mode="reflect").to(torch.uint8)


def _crop(images: Tensor, y: Tensor, x: Tensor, height: int, width: int) -> Tensor:
    """Cut a window out of each image, its corner at (y, x): one `index_select` of rows over the
    whole batch.
    """
    # Where in the flat bytes each pixel row of each window begins: (batch, channel, row)
    batch, channels, padded_height, padded_width = images.shape
    device = images.device
    plane = torch.arange(batch * channels, device=device).view(batch, channels, 1) * (
        padded_height * padded_width
    )
    row = torch.arange(height, device=device) * padded_width
    start = plane + row + (y * padded_width + x).view(batch, 1, 1)
    # Row k of the unfolded view is the `width` bytes from byte k on, so a start picks any row at
    # any offset.
    rows = images.view(-1).unfold(0, width, 1).index_select(0, start.view(-1))
    return rows.view(batch, channels, height, width)
