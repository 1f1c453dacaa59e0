"""Image files of any size and kind, brought to uint8 arrays of one shape."""

import io
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from litlab.data.bad_rows import BadRows
from litlab.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
KINDS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # those in Pillow's words; others can run programs
Mode = Literal["RGB", "L"]
Resize = Literal["crop", "stretch", "pad"]

_ORIENTATION = 0x0112  # EXIF tag
SMALL = 16_384  # bytes: smaller files decode so fast that threads would only wait for the interpreter lock

# Pillow's modes for grey images; all the others are colour. "P" is a palette, usually of colours.
_GREY = ("1", "L", "LA", "La")


@dataclass(frozen=True)
class ImageFormat:
    """The one shape that all images of a data set get.

    Args:
        height: Pixels.
        width: Pixels.
        mode: "RGB" (3 channels) or "L" (grey, 1 channel).
        resize: How images of another size are fitted; None refuses them.
        convert: Whether images of another mode are converted; else they are refused.
    """

    height: int
    width: int
    mode: Mode
    resize: Resize | None
    convert: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channel, height, width)."""
        return 3 if self.mode == "RGB" else 1, self.height, self.width


class _OddImage(Exception):
    """The image is readable, but unlike the others; the message says how, and which setting makes them alike."""


def _mode(image: "Image.Image") -> Mode:
    return "L" if image.mode in _GREY or image.mode.startswith("I;16") else "RGB"


def _turned(image: "Image.Image") -> bool:
    """Whether the camera was held sideways (EXIF orientations 5 to 8 swap height and width)."""
    return image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)


def _plain(image: "Image.Image", mode: Mode) -> "Image.Image":
    """Upright, 8 bits per channel, opaque, in the mode asked for."""
    from PIL import Image, ImageOps

    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow's own conversion clips 16 bits at 255 instead of scaling them
        image = Image.fromarray((np.asarray(image).astype(np.uint16) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel of unknown range: save it with 8 or 16")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")  # what is hidden by transparency must not show: lay it on white, as a page does
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image if image.mode == mode else image.convert(mode)


def conform(image: "Image.Image", form: ImageFormat) -> np.ndarray:
    """Bring an opened image to the format: uint8 of shape (channel, height, width)."""
    from PIL import Image, ImageOps

    width, height = image.size[::-1] if _turned(image) else image.size
    size = (form.width, form.height)
    if (width, height) != size:
        if form.resize is None:
            raise _OddImage(
                f"is {height} x {width} pixels, the others {form.height} x {form.width}; "
                f"give one (height, width) for all: --data.image_size '[{form.height}, {form.width}]'"
            )
        # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, for far less work. Twice the target keeps it sharp.
        image.draft(None, (2 * max(size), 2 * max(size)))
    if not form.convert and _mode(image) != form.mode:
        kinds = {"RGB": "colour", "L": "grey"}
        raise _OddImage(
            f"is {kinds[_mode(image)]}, the others {kinds[form.mode]}; choose one for all: --data.mode RGB (or L)"
        )
    image = _plain(image, form.mode)
    if image.size != size:
        how = Image.Resampling.BILINEAR
        if form.resize == "stretch":
            image = image.resize(size, how)
        elif form.resize == "pad":
            image = ImageOps.pad(image, size, how)
        else:
            image = ImageOps.fit(image, size, how)
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _broken() -> tuple[type[Exception], ...]:
    """All that Pillow raises for files that are damaged or no images."""
    from PIL import Image

    return OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError


def reason(error: Exception) -> str:
    """Say in one short line why `decode_file` failed, without the file name that the message has already."""
    if isinstance(error, _OddImage):
        return str(error)
    return f"unreadable image ({_cause(error)})"


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "not an image" if "identify" in str(error) else " ".join(str(error).split())


def decode_file(file: Path | io.BytesIO, form: ImageFormat) -> np.ndarray | Exception:
    """Decode one file as `conform` does; what is wrong with it is returned, so that a thread pool can go on."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            return conform(image, form)
    except (*_broken(), _OddImage) as error:
        return error


def decode_sent(data: bytes, form: ImageFormat, most_pixels: int) -> np.ndarray:
    """Decode an image that somebody has sent: only the common kinds, and none that would fill the memory.

    Args:
        data: The bytes of its file.
        form: The format wanted.
        most_pixels: How many it may have.

    Returns:
        uint8 of shape (channel, height, width).

    Raises:
        UserError: It is too large, damaged, or no image.
    """
    from PIL import Image

    too_large = f"send one of at most {most_pixels:,}"
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=KINDS) as image:
            width, height = image.size
            if width * height > most_pixels:  # told by the header, before anything is decoded
                raise UserError(f"image: it has {width} x {height} pixels; {too_large}")
            return conform(image, form)
    except Image.DecompressionBombError as error:  # Pillow's own limit
        raise UserError(f"image: it has too many pixels; {too_large}") from error
    except (*_broken(), _OddImage) as error:
        raise UserError(f"image: it can't be read ({_cause(error)}); send a file of {', '.join(KINDS)}") from error


def peek(path: Path) -> tuple[int, int, Mode]:
    """Read (height, width, mode) from the header of an image; a UserError says that it is not readable."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            width, height = image.size[::-1] if _turned(image) else image.size
            return height, width, _mode(image)
    except _broken() as error:
        raise UserError(f"{path}: unreadable image ({_cause(error)}); replace or delete it") from error


def decode_blocks(files: Sequence[Path], form: ImageFormat, bad: BadRows) -> Iterator[np.ndarray]:
    """Decode files, large ones in threads (Pillow lets go of the interpreter lock while it decodes).

    Args:
        files: The files.
        form: The format wanted.
        bad: Gets the files that are damaged, which are left out.

    Yields:
        uint8 blocks of shape (some, channel, height, width), in the order of the files, of about 64 MB at most.

    Raises:
        UserError: Files are unlike the others: then their number and the first one are named, after all files have
            been looked at.
    """
    block = min(2048, max(64, 2**26 // int(np.prod(form.shape))))
    odd: list[str] = []
    small = os.path.isfile(files[0]) and os.path.getsize(files[0]) < SMALL
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        apply = map if small else pool.map
        for start in range(0, len(files), block):
            part = files[start : start + block]
            arrays: list[np.ndarray] = []
            for file, array in zip(part, apply(partial(decode_file, form=form), part), strict=True):
                if isinstance(array, _OddImage):
                    odd.append(f"{file} {array}")
                elif isinstance(array, Exception):
                    bad.add(str(file), reason(array))
                else:
                    arrays.append(array)
            if arrays and not odd:
                yield np.stack(arrays)
    if odd:
        others = f" ({len(odd):,} of {len(files):,} images are unlike the others)" if len(odd) > 1 else ""
        raise UserError(odd[0] + others)
