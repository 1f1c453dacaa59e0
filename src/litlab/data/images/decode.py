"""Image files of any size and kind, brought to uint8 arrays of one shape."""

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from litlab.data.serving import ClassMetadata
from litlab.errors import first_line

Mode = Literal["RGB", "L"]
Resize = Literal["crop", "stretch", "pad"]
# A file, its bytes, or pixels: uint8 (height, width) or (height, width, channel)
Source = Path | bytes | np.ndarray
Picture = Image.Image
Change = Callable[[Picture], Picture]

# In Pillow's words; others can run programs.
_SAFE = {"JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF", "HEIF"}
_EXAMINED = 100  # files that the format is taken from
_FITTING = {"crop": ImageOps.fit, "pad": ImageOps.pad, "stretch": Image.Image.resize}


@dataclass(frozen=True)
class ImageMetadata(ClassMetadata):
    """Metadata of images, among it the format that any image gets.

    Args:
        image_shape: (channel, height, width), with 3 channels or 1 (grey).
        resize: How images of another size are fitted; None refuses them.
        depth: Bits that the values of images with 16 bits per pixel make use of.
        mean: What is subtracted from each channel, of pixels from 0 to 1.
        std: What each channel is divided by.
        generated: Whether the images are made up.
    """

    fixed: ClassVar[tuple[str, ...]] = ("class_names", "image_shape")
    image_shape: tuple[int, int, int]
    resize: Resize | None
    depth: int
    mean: list[float]
    std: list[float]
    generated: bool


@cache
def find_kinds() -> dict[str, str]:
    """Return the kinds of images that this Pillow reads, by the ends of file names; with
    pillow-heif also HEIC.
    """
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()
    return {suffix: kind for suffix, kind in Image.registered_extensions().items() if kind in _SAFE}


def open_image(source: Source) -> Picture:
    """Open an image; the pixels of a file are not decoded yet."""
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    return Image.open(stream, formats=[*find_kinds().values()])


def load_upright(image: Picture) -> Picture:
    """Decode an opened image as it is to be seen, whichever way the camera was held."""
    image.load()
    with suppress(Exception):  # of broken EXIF data anything is thrown
        ImageOps.exif_transpose(image, in_place=True)
    return image


def examine(files: Sequence[Path]) -> tuple[tuple[int, int, int], int]:
    """Look at 100 files, to know what images are like.

    Returns:
        (channel, height, width): the size of the first that can be read, and 1 channel if none has
        colours, else 3; and the least of 8, 10, 12 and 16 bits that values of 16 bits fit into:
        cameras and scanners often have 10 or 12.
    """
    size, channels, largest = None, 1, 0
    for file in files[:: 1 + len(files) // _EXAMINED]:
        # Decoding all of them tells what is wrong
        with suppress(Exception), open_image(file) as image:
            if Image.getmodebase(image.mode) != "L":
                channels = 3
            if image.mode.startswith("I;16"):
                largest = max(largest, int(np.asarray(image).max()))
            size = size or load_upright(image).size
    width, height = size or (32, 32)
    depth = next((bits for bits in (8, 10, 12) if 0 < largest < 2**bits), 16)
    return (channels, height, width), depth


def decode(source: Source, form: ImageMetadata, change: Change | None = None) -> np.ndarray | str:
    """Decode an image.

    Args:
        source: The image.
        form: The format that it gets.
        change: What happens to it at its original size.

    Returns:
        uint8 of shape (channel, height, width); or what is wrong with it, for all of them to be
        told at once.
    """
    try:
        with open_image(source) as opened:
            if form.resize is not None and change is None:
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, for less work.
                longest = 2 * max(form.image_shape)
                opened.draft(None, (longest, longest))
            image = _make_plain(load_upright(opened), form)
    except UnidentifiedImageError:
        return "not an image"
    except Exception as error:  # Pillow's readers can raise anything for a damaged file
        return first_line(error)

    if change is not None:
        image = change(image)
    _, height, width = form.image_shape
    if image.size != (width, height):
        image = _FITTING[form.resize or "crop"](image, (width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.atleast_3d(np.asarray(image)).transpose(2, 0, 1))


def _make_plain(image: Picture, form: ImageMetadata) -> Picture:
    """Return an image of 8 bits per channel, opaque, grey or in colours as the format has it."""
    channels, height, width = form.image_shape
    if form.resize is None and image.size != (width, height):
        raise ValueError(
            f"{image.height} x {image.width} pixels, not {height} x {width}: set data.image_size"
        )
    # Pillow's own conversion clips 16 bits at 255 instead of scaling them
    if image.mode.startswith("I;16"):
        scaled = np.asarray(image, np.uint32) * 255 // (2**form.depth - 1)
        image = Image.fromarray(scaled.clip(max=255).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel of unknown range: save it with 8 or 16")
    if image.has_transparency_data:
        # What is hidden by transparency must not show: lay it on white, as a page does
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")
