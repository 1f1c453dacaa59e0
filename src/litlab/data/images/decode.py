"""Image files of any size and kind, brought to uint8 arrays of one shape."""

import io
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from litlab.data.files import Policy, drop_bad_rows
from litlab.data.store import progress_bar
from litlab.data.target_metadata import TargetMetadata
from litlab.errors import UserError, first_line

Mode = Literal["RGB", "L"]
Resize = Literal["crop", "stretch", "pad"]
# A file, its bytes, or pixels: uint8 (height, width) or (height, width, channel)
Source = Path | bytes | np.ndarray
# An array of them, or what else returns some for their numbers, int64 of shape (images,)
Images = Any
Picture = Image.Image
Change = Callable[[Picture], Picture]

# In Pillow's words. Others are less used and less tested, and EPS is drawn by another program.
_SAFE = {"JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF", "HEIF"}
_HEIC = (".heic", ".heif")
_EXAMINED = 100  # images that the format is taken from
_ALIKE = 0.9  # share of them that have one size, where images are of one size
_BLOCK = 128  # images that are handled at a time
_FITTING = {"crop": ImageOps.fit, "pad": ImageOps.pad, "stretch": Image.Image.resize}


@dataclass(frozen=True, kw_only=True)
class ImageMetadata(TargetMetadata):
    """Metadata of images, among it the format that any image gets.

    Args:
        image_shape: (channel, height, width), with 3 channels or 1 (grey).
        resize: How images of another size are fitted; None refuses them.
        depth: Bits that the values of images with 16 bits per pixel make use of; None where
            training has no such images: then they are refused.
        refuses_colours: Whether images with colours are refused, since the others seemed to be
            grey; else they become so where there is 1 channel.
        mean: What is subtracted from each channel, of pixels from 0 to 1.
        std: What each channel is divided by.
    """

    fixed: ClassVar[tuple[str, ...]] = (*TargetMetadata.fixed, "image_shape")
    image_shape: tuple[int, int, int]
    resize: Resize | None
    depth: int | None
    refuses_colours: bool
    mean: list[float]
    std: list[float]


@cache
def find_kinds() -> dict[str, str]:
    """Return the kinds of images that this Pillow reads, by the ends of file names; with
    pillow-heif also HEIC.
    """
    # HEIC is what iPhones save; without the package `decode` says what to install
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()
    return {suffix: kind for suffix, kind in Image.registered_extensions().items() if kind in _SAFE}


def is_image(name: str) -> bool:
    """Return whether a file is an image by its name; HEIC is one, even if it can't be read here."""
    suffix = Path(name).suffix.lower()
    return suffix in find_kinds() or suffix in _HEIC


def open_image(source: Source) -> Picture:
    """Open an image; the pixels of a file are not decoded yet."""
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    return Image.open(stream, formats=[*find_kinds().values()])


def examine(images: Images, count: int, *, is_resized: bool) -> tuple[tuple[int, int, int], bool]:
    """Look at about 100 images, to find the format of all.

    Args:
        images: The images.
        count: How many there are.
        is_resized: Whether they may be of many sizes.

    Returns:
        (channel, height, width): the size of most of them, and 1 channel if none has colours, else
        3; and whether one has 16 bits per pixel.

    Raises:
        UserError: They are of many sizes.
    """
    sizes, channels, is_deep = Counter[tuple[int, int]](), 1, False
    for source in images[np.arange(0, count, 1 + count // _EXAMINED)]:
        # Damaged ones are named later, when all are decoded
        with suppress(Exception), open_image(source) as image:
            width, height = image.size
            # A picture that lies on its side, as its EXIF tag says (5 to 8), will be turned. Of a
            # TIFF Pillow (13.0) gives the size after turning
            if image.format != "TIFF" and image.getexif().get(0x0112, 1) > 4:
                width, height = height, width
            sizes[height, width] += 1
            if _has_colours(image):
                channels = 3
            is_deep |= image.mode.startswith("I;16")

    # Without any good image the size does not matter: all are refused when they are decoded
    ((size, alike),) = sizes.most_common(1) or [((32, 32), 0)]
    if not is_resized and alike < _ALIKE * sizes.total():
        found = [f"{height} x {width}" for height, width in sizes]
        raise UserError(
            f"data.image_size: the images are of {len(sizes)} sizes, as {found[0]} and {found[1]} "
            "pixels; set the height and width that all get, such as --data.image_size '[224, 224]'"
        )
    return (channels, *size), is_deep


def _has_colours(image: Picture) -> bool:
    # Grey modes are "L", "LA", "1", "I" and so on. A palette counts as colours, even a grey one
    return Image.getmodebase(image.mode) != "L"


def measure_depth(images: Images, count: int) -> int:
    """Look at all images; return the least of 8, 10, 12 and 16 bits that values of 16 bits fit
    into: cameras and scanners often have 10 or 12.
    """
    largest = max(value for _, value in map_images(_find_largest, images, range(count)))
    return next((bits for bits in (8, 10, 12) if largest < 2**bits), 16)


def _find_largest(source: Source) -> int:
    with suppress(Exception), open_image(source) as image:
        if image.mode.startswith("I;16"):
            return int(np.asarray(image).max())
    return 0


def decode_good(
    images: Images,
    names: Sequence[str],
    form: ImageMetadata,
    positions: Any,
    policy: Policy,
    where: str,
) -> Iterator[tuple[int, np.ndarray]]:
    """Decode images, by their numbers; at the end refuse those that can't be used, or say that they
    are left out, see `drop_bad_images`.

    Args:
        images: The images.
        names: As of `drop_bad_images`.
        form: The format that they get.
        positions: Their numbers.
        policy: As of `drop_bad_images`.
        where: As of `drop_bad_images`.

    Yields:
        Number and pixels of each of the others.
    """
    problems = {}
    for position, image in map_images(partial(decode, form=form), images, positions):
        if isinstance(image, str):
            problems[position] = image
        else:
            yield position, image
    drop_bad_images(names, problems, form, policy, where)


def map_images(
    function: Callable[[Source], Any], images: Images, positions: Any
) -> Iterator[tuple[int, Any]]:
    """Call a function for each image, in threads; yield number and result."""
    # In blocks, so that not all images are in memory; threads, as Pillow decodes without Python's
    # lock
    with ThreadPoolExecutor() as pool:
        blocks: Iterable[int] = range(0, len(positions), _BLOCK)
        for start in progress_bar(blocks, desc="decoding images", unit_scale=_BLOCK):
            block = positions[start : start + _BLOCK]
            yield from zip(block, pool.map(function, images[np.asarray(block)]), strict=True)


def drop_bad_images(
    names: Sequence[str],
    problems: Mapping[int, str],
    form: ImageMetadata,
    policy: Policy,
    where: str,
) -> None:
    """Refuse images that can't be used, or say that they are left out.

    Args:
        names: What messages call each image.
        problems: What is wrong with an image, by its number.
        form: The format that they should get.
        policy: Whether they are an error or left out.
        where: The setting that names them.

    Raises:
        UserError: There are some, and they may not be left out, or no others are left.
    """
    import pandas as pd

    # If most of them are whole, but unlike the images that the format was taken from, one setting
    # is wrong and not many images. Problems have the setting in their text, see `_make_plain`
    _, height, width = form.image_shape
    unlike = {
        "data.image_size": (f"of {height} x {width} pixels", f"'[{height}, {width}]'"),
        "data.mode": ("grey", "RGB"),
    }
    for setting, (usual, value) in unlike.items():
        others = [number for number, problem in problems.items() if setting in problem]
        if policy == "error" and len(others) > len(problems) / 2:
            verb = "is" if len(others) == 1 else "are"
            raise UserError(
                f"{setting}: {len(others):,} of {len(names):,} images {verb} not {usual}, such as "
                f"{names[others[0]]}; set --{setting} {value}, or use --data.bad_rows drop"
            )
    named: dict[Hashable, str] = {
        names[position]: problem for position, problem in problems.items()
    }
    drop_bad_rows(pd.DataFrame(index=list(names)), named, policy, where, "image")


def decode(source: Source, form: ImageMetadata, change: Change | None = None) -> np.ndarray | str:
    """Decode an image.

    Args:
        source: The image.
        form: The format that it gets.
        change: What happens to it at its original size.

    Returns:
        uint8 of shape (channel, height, width); or what is wrong with it, so that one message can
        name all bad images.
    """
    # Pixels, upright, of 8 bits and of the format's channels
    try:
        with open_image(source) as opened:
            if form.resize is not None and change is None:
                # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, for less work.
                longest = 2 * max(form.image_shape)
                opened.draft(None, (longest, longest))
            opened.load()
            with suppress(Exception):  # of broken EXIF data anything is thrown
                ImageOps.exif_transpose(opened, in_place=True)
            image = _make_plain(opened, form)
    except UnidentifiedImageError:
        return "HEIC, which pip install pillow-heif reads" if _is_heic(source) else "not an image"
    except Exception as error:  # Pillow's readers can raise anything for a damaged file
        return first_line(error)

    # At its own size first the user's transforms, so that a random crop has all pixels to choose
    # from; then the format's size
    if change is not None:
        image = change(image)
    _, height, width = form.image_shape
    image = fit_picture(image, (height, width), form.resize)
    pixels = np.atleast_3d(np.asarray(image))  # a grey image has no axis of channels
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def fit_picture(
    picture: Picture,
    size: tuple[int, int],
    resize: Resize | None,
    resampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> Picture:
    """Bring a picture to a size, height and width."""
    height, width = size
    if picture.size == (width, height):
        return picture
    return _FITTING[resize or "crop"](picture, (width, height), resampling)


def _is_heic(source: Any) -> bool:
    content = source.read_bytes() if isinstance(source, Path) else source
    # A HEIC file begins with the length of its first box, then "ftyp" and a brand
    return content[4:12] in (b"ftypheic", b"ftypheix", b"ftypmif1")


def _make_plain(image: Picture, form: ImageMetadata) -> Picture:
    """Return an image of 8 bits per channel, opaque, grey or in colours as the format has it."""
    # What the format refuses
    channels, height, width = form.image_shape
    if form.resize is None and image.size != (width, height):
        raise ValueError(
            f"{image.height} x {image.width} pixels, not {height} x {width}: set data.image_size"
        )
    if form.refuses_colours and _has_colours(image):
        raise ValueError("colours, and the others are grey: set --data.mode RGB")

    # To 8 bits. Pillow's own conversion clips 16 bits at 255 instead of scaling them
    if image.mode.startswith("I;16"):
        if form.depth is None:
            raise ValueError("16 bits per pixel, and the others have 8: save it with 8")
        values = np.asarray(image, np.uint32)
        if values.max(initial=0) >= 2**form.depth:
            raise ValueError(
                f"16 bits per pixel with values up to {values.max()}, and those of the training "
                f"have {form.depth} bits: scale it to them"
            )
        # By the range of all images, so that one is as dark beside another as it was
        image = Image.fromarray((values * 255 // (2**form.depth - 1)).astype(np.uint8))
    elif image.mode == "I" and image.format == "PPM":  # scaled by Pillow to 65,535
        image = Image.fromarray((np.asarray(image) * 255 // 65_535).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("32 bits per pixel of unknown range: save it with 8 or 16")

    # To opaque pixels, and the format's channels
    if image.has_transparency_data:
        # What is hidden by transparency must not show: lay it on white, as a page does
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")
