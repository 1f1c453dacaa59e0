"""Image files of any size and kind, brought to uint8 arrays of one shape."""

import io
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.data import get_worker_info

from litlab.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

    Picture = Image.Image
else:
    Picture = Any

Mode = Literal["RGB", "L"]
Resize = Literal["crop", "stretch", "pad"]
Change = Callable[[Picture], Picture]

KINDS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF")  # in Pillow's words; others can run programs
_SMALL = 16_384  # bytes: smaller files decode so fast that threads would only wait for the interpreter lock
_ORIENTATION = 0x0112  # EXIF tag
_TURNS = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip
_REMEDIES = {
    "unreadable": "replace or delete what is unreadable, or use --data.bad_rows drop (not with data.cache none)",
    "of another size": "bring all to one size: --data.image_size '[{0.height}, {0.width}]'",
    "of another mode": "convert all to one mode: --data.mode RGB (or L)",
}


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


class OddImage(Exception):
    """The image is readable, but unlike the others; its argument says how, by the kinds of `_REMEDIES`."""


@cache
def _load_pillow() -> Any:
    """Import Pillow; with pillow-heif it reads HEIC too."""
    from PIL import Image

    if find_spec("pillow_heif"):
        import_module("pillow_heif").register_heif_opener()
    return Image


def open_image(source: Path | bytes) -> Picture:
    """Open an image, whose pixels are not decoded yet."""
    if isinstance(source, bytes):
        return _load_pillow().open(io.BytesIO(source))
    if not source.is_file():
        raise OSError("a broken link or a pipe" if source.exists() or source.is_symlink() else "there is no such file")
    return _load_pillow().open(source)


def load_upright(image: Picture, least: int | None = None) -> Picture:
    """Decode an opened image as it is to be seen, whichever way the camera was held.

    Args:
        image: The image.
        least: Pixels of a side that are enough: a JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, for less work.
    """
    if least is not None:
        image.draft(None, (least, least))
    image.load()
    try:  # what has been loaded, as Pillow turns TIFF files by itself
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # of broken EXIF data anything is thrown
        turn = None
    return image if turn is None else image.transpose(_load_pillow().Transpose[turn])


def _find_mode(image: Picture) -> Mode:
    return "L" if image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16") else "RGB"


def peek(files: Sequence[Path]) -> tuple[int, int, Mode]:
    """Return height, width and mode of the first image that can be read."""
    for file in files:
        try:
            with open_image(file) as opened:
                image = load_upright(opened)
            return image.height, image.width, _find_mode(image)
        except Exception:  # decoding all of them tells what is wrong
            continue
    raise UserError(f"data.path: none of {len(files):,} images can be read, such as {files[0]}; replace them")


def find_depth(files: Sequence[Path]) -> int:
    """Return how many bits the values of 16-bit images make use of: cameras and scanners often have 10 or 12."""
    largest = 0
    for file in pick_evenly(files, 200):
        with suppress(Exception), open_image(file) as image:
            if image.mode.startswith("I;16"):
                largest = max(largest, int(np.asarray(image).max()))
    depth = next(bits for bits in (8, 10, 12, 16) if largest < 2**bits) if largest else 16
    if depth < 16:
        rank_zero_info(f"{files[0].parent}: 16-bit images use {depth} bits only, and are scaled by these")
    return depth


def pick_evenly(files: Sequence[Path], most: int) -> list[Path]:
    """Return some files that are evenly spread, or all where there are fewer."""
    return [files[place] for place in np.linspace(0, len(files) - 1, min(most, len(files))).astype(int)]


def conform(image: Picture, form: ImageFormat, change: Change | None = None) -> np.ndarray:
    """Bring an opened image to a format.

    Args:
        image: The image.
        form: The format.
        change: What happens to it at its original size, see `change_image`.

    Returns:
        uint8 of shape (channel, height, width).

    Raises:
        OddImage: It is unlike the others.
    """
    is_free = form.resize is not None
    image = load_upright(image, 2 * max(form.height, form.width) if is_free and change is None else None)
    odd = {}
    if not is_free and image.size != (form.width, form.height):
        odd["of another size"] = f"{image.height} x {image.width} pixels, not {form.height} x {form.width}"
    if not form.convert and _find_mode(image) != form.mode:
        odd["of another mode"] = "grey, not colour" if form.mode == "RGB" else "colour, not grey"
    if odd:
        raise OddImage(odd)
    image = _make_plain(image, form)
    array = np.asarray(_fit(image if change is None else change(image), form))
    return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))


def _make_plain(image: Picture, form: ImageFormat) -> Picture:
    """Return an image of 8 bits per channel, opaque, in the mode asked for."""
    pillow = _load_pillow()
    if image.mode.startswith("I;16"):  # Pillow's own conversion clips 16 bits at 255 instead of scaling them
        scaled = np.asarray(image).astype(np.uint32) * 255 // (2**form.depth - 1)
        image = pillow.fromarray(scaled.clip(max=255).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel of unknown range: save it with 8 or 16")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")  # what is hidden by transparency must not show: lay it on white, as a page does
        image = pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)
    return image if image.mode == form.mode else image.convert(form.mode)


def to_picture(image: np.ndarray) -> Picture:
    """Return what `conform` takes, for uint8 of shape (channel, height, width)."""
    return _load_pillow().fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))


def _fit(image: Picture, form: ImageFormat) -> Picture:
    from PIL import ImageOps

    size, how = (form.width, form.height), _load_pillow().Resampling.BILINEAR
    if image.size == size:
        return image
    if form.resize == "stretch":
        return image.resize(size, how)
    return ImageOps.pad(image, size, how) if form.resize == "pad" else ImageOps.fit(image, size, how)


def decode(source: Path | bytes, form: ImageFormat, change: Change | None = None) -> np.ndarray | Exception:
    """Decode an image as `conform` does; what is wrong with it is returned, for all of them to be told at once."""
    try:
        with open_image(source) as image:
            return conform(image, form, change)
    except UserError:
        raise
    except Exception as error:  # Pillow's readers can raise anything for a damaged file
        return error


def decode_all(sources: Sequence[Path | bytes], form: ImageFormat) -> list[np.ndarray | Exception]:
    """Decode images, large ones in threads (Pillow lets go of the interpreter lock), but not in a loader's worker."""
    first = sources[0]
    is_small = (len(first) if isinstance(first, bytes) else first.is_file() and first.stat().st_size) < _SMALL
    if is_small or get_worker_info() is not None:
        return [decode(source, form) for source in sources]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(partial(decode, form=form), sources))


def decode_sent(data: bytes, form: ImageFormat, most_pixels: int) -> np.ndarray:
    """Decode an image that somebody has sent: only the common kinds, and none that would fill the memory.

    Args:
        data: The bytes of its file.
        form: The format.
        most_pixels: How many it may have.

    Returns:
        uint8 of shape (channel, height, width).

    Raises:
        UserError: It is too large, damaged, or no image.
    """
    pillow = _load_pillow()
    pillow.init()
    kinds = [kind for kind in KINDS if kind in pillow.OPEN]
    try:
        with warnings.catch_warnings(action="ignore"), pillow.open(io.BytesIO(data), formats=kinds) as image:
            width, height = image.size
            if width * height > most_pixels:  # told by the header, before anything is decoded
                raise UserError(f"image: it has {width} x {height} pixels; send one of at most {most_pixels:,}")
            return conform(image, form)
    except UserError:
        raise
    except pillow.DecompressionBombError as error:  # Pillow's own limit
        raise UserError(f"image: it has too many pixels; send one of at most {most_pixels:,}") from error
    except Exception as error:
        raise UserError(f"image: it can't be read ({explain(error)}); send a file of {', '.join(kinds)}") from error


def explain(error: Exception) -> str:
    """Say in a few words why an image can't be decoded."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "not an image" if "identify" in str(error) else " ".join(str(error).split()) or type(error).__name__


def refuse(
    bad: Mapping[str, Exception], count: int, form: ImageFormat, where: object, kind: type[UserError] = UserError
) -> None:
    """Name all that is wrong with images in one error, with what helps against each.

    Args:
        bad: What `decode` returned in place of images, by their names.
        count: How many images there are in all.
        form: The format that they should have got.
        where: What messages call the data.
        kind: Of the error.

    Raises:
        UserError: There are some.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for name, error in bad.items():
        for trouble, detail in (
            error.args[0] if isinstance(error, OddImage) else {"unreadable": explain(error)}
        ).items():
            found[trouble].append(f"{name}: {detail}")
    if found:
        kinds = ", ".join(f"{len(images):,} {trouble} ({images[0]})" for trouble, images in found.items())
        remedies = "; ".join(_REMEDIES[trouble].format(form) for trouble in found)
        raise kind(f"{where}: {len(bad):,} of {count:,} images can't be used: {kinds}; {remedies}")
