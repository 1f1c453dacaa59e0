"""Image files of any size and kind, brought to uint8 arrays of one shape."""

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from litlab.errors import UserError, first_line

Mode = Literal["RGB", "L"]
Resize = Literal["crop", "stretch", "pad"]
Picture = Image.Image
Change = Callable[[Picture], Picture]

KINDS = (
    "JPEG",
    "PNG",
    "BMP",
    "GIF",
    "WEBP",
    "TIFF",
    "PPM",
    "AVIF",
    "HEIF",
)  # in Pillow's words; others can run programs


@dataclass(frozen=True)
class ImageFormat:
    """The one shape that all images of a data set get.

    Args:
        height: Pixels.
        width: Pixels.
        mode: "RGB" (3 channels) or "L" (grey, 1 channel).
        resize: How images of another size are fitted; None refuses them.
        convert: Whether images of another mode are converted; else they are refused.
        depth: Bits that the values of images with 16 bits per pixel make use of, see `find_depth`.
    """

    height: int
    width: int
    mode: Mode
    resize: Resize | None
    convert: bool
    depth: int = 16

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channel, height, width)."""
        return 3 if self.mode == "RGB" else 1, self.height, self.width


@cache
def _find_kinds() -> list[str]:
    """Return the kinds that this Pillow reads; with pillow-heif also HEIC."""
    if find_spec("pillow_heif"):
        import_module("pillow_heif").register_heif_opener()
    Image.init()
    return [kind for kind in KINDS if kind in Image.OPEN]


def open_image(source: Path | bytes) -> Picture:
    """Open a file or its bytes; the pixels are not decoded yet."""
    return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=_find_kinds())


def load_upright(image: Picture) -> Picture:
    """Decode an opened image as it is to be seen, whichever way the camera was held."""
    image.load()
    with suppress(Exception):  # of broken EXIF data anything is thrown
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _find_mode(image: Picture) -> Mode:
    return "L" if image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16") else "RGB"


def peek(files: Sequence[Path]) -> tuple[int, int, Mode]:
    """Return height, width and mode of the first image that can be read."""
    for file in files:
        with suppress(Exception), open_image(file) as opened:  # decoding all of them tells what is wrong
            image = load_upright(opened)
            return image.height, image.width, _find_mode(image)
    raise UserError(f"data.path: none of {len(files):,} images can be read, such as {files[0]}; replace them")


def find_depth(files: Sequence[Path]) -> int:
    """Return how many bits the values of 16-bit images make use of: cameras and scanners often have 10 or 12."""
    largest = 0
    for file in files[:: 1 + len(files) // 100]:
        with suppress(Exception), open_image(file) as image:
            if image.mode.startswith("I;16"):
                largest = max(largest, int(np.asarray(image).max()))
    return next((bits for bits in (8, 10, 12) if 0 < largest < 2**bits), 16)


def decode(
    source: Path | bytes, form: ImageFormat, change: Change | None = None, most_pixels: int | None = None
) -> np.ndarray | str:
    """Decode an image.

    Args:
        source: Its file, or the bytes of that.
        form: The format that it gets.
        change: What happens to it at its original size.
        most_pixels: More than that are not decoded.

    Returns:
        uint8 of shape (channel, height, width); or what is wrong with it, for all of them to be told at once.
    """
    try:
        with open_image(source) as opened:
            if most_pixels is not None and opened.width * opened.height > most_pixels:
                raise ValueError(f"{opened.width} x {opened.height} pixels, more than {most_pixels:,}")
            if form.resize is not None and change is None:
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, for less work.
                opened.draft(None, (2 * max(form.shape), 2 * max(form.shape)))
            image = _make_plain(load_upright(opened), form)
    except UnidentifiedImageError:
        return "not an image"
    except Exception as error:  # Pillow's readers can raise anything for a damaged file
        return first_line(error)
    return fit(image if change is None else change(image), form)


def _make_plain(image: Picture, form: ImageFormat) -> Picture:
    """Return an image of 8 bits per channel, opaque, in the mode asked for."""
    if form.resize is None and image.size != (form.width, form.height):
        raise ValueError(
            f"{image.height} x {image.width} pixels, not {form.height} x {form.width}: set data.image_size"
        )
    if not form.convert and _find_mode(image) != form.mode:
        raise ValueError(f"{image.mode}, not {form.mode}: set data.mode")
    if image.mode.startswith("I;16"):  # Pillow's own conversion clips 16 bits at 255 instead of scaling them
        scaled = np.asarray(image).astype(np.uint32) * 255 // (2**form.depth - 1)
        image = Image.fromarray(scaled.clip(max=255).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel of unknown range: save it with 8 or 16")
    if image.has_transparency_data:
        image = image.convert("RGBA")  # what is hidden by transparency must not show: lay it on white, as a page does
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert(form.mode)


def fit(image: Picture, form: ImageFormat) -> np.ndarray:
    """Bring a decoded image to a size: uint8 of shape (channel, height, width)."""
    size, how = (form.width, form.height), Image.Resampling.BILINEAR
    if image.size != size:
        if form.resize == "stretch":
            image = image.resize(size, how)
        else:
            image = ImageOps.pad(image, size, how) if form.resize == "pad" else ImageOps.fit(image, size, how)
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def to_picture(image: np.ndarray) -> Picture:
    """Return a picture of uint8 (channel, height, width)."""
    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
