"""Kinds of images, and how they get one size and mode."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import make, open_files, take, write_image, write_images


def save(image, name="image.png", **options):
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(name, **options)
    return name


def decoded(path, **settings) -> np.ndarray:
    """What an image becomes: uint8 (channel, height, width)."""
    return take(open_files([path, path], **settings))


def test_transparency_is_laid_on_white_and_palettes_and_cmyk_become_colours():
    for mode, value, colour in (
        ("RGBA", (10, 20, 30, 255), [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), [255, 255, 255]),
        ("RGBA", (0, 0, 0, 128), [127, 127, 127]),
        ("CMYK", (0, 255, 255, 0), [255, 0, 0]),
    ):
        found = decoded(save(Image.new(mode, (2, 2), value), "image.tif"))[:, 0, 0]
        np.testing.assert_allclose(found.astype(int), colour, rtol=0, atol=1)
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([0, 0, 0, 250, 10, 20])
    assert decoded(save(palette))[:, 0, 0].tolist() == [250, 10, 20]
    assert decoded(save(palette, transparency=1)).min() == 255


@pytest.mark.parametrize("kind", ["jpg", "tif", "png"])
@pytest.mark.parametrize(("orientation", "turns"), [(3, 2), (6, 3)])  # to the left
def test_the_camera_was_turned(kind, orientation, turns):
    array = np.zeros((4, 8, 3), dtype=np.uint8)
    array[:, :4] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = orientation
    result = decoded(save(array, f"image.{kind}", exif=exif)).transpose(1, 2, 0)
    np.testing.assert_allclose(result.astype(int), np.rot90(array, turns), atol=20)


def test_broken_exif_data_is_none():
    path = Path("a.jpg")
    write_image(path)
    plain, expected = path.read_bytes(), decoded(path)
    entry = 0x0112, 99, 9, 9**9  # of an impossible length and place
    segment = b"Exif\0\0II*\0" + struct.pack("<IHHHIII", 8, 1, *entry, 0)
    header = b"\xff\xe1" + struct.pack(">H", len(segment) + 2)
    path.write_bytes(plain[:2] + header + segment + plain[2:])
    np.testing.assert_array_equal(decoded(path), expected)


@pytest.mark.parametrize(("odd", "bits", "depth"), [(None, 8, 8), (1, 8, 10), (249, 16, 16)])
def test_16_bits_are_scaled_by_those_in_use(odd, bits, depth):
    """In 250 images of 8 or 10 bits, but for one; also in prediction, by what the checkpoint
    says, where bytes may come from the other end.
    """
    most, files = 2 ** min(10, depth) - 1, []
    for number in range(250):
        top = 2**bits - 1 if number == odd else most
        files.append(save(np.array([[0, top // 4, top]], np.uint16), f"{number:03}.png"))
    data = open_files(files)
    assert data.metadata.depth == depth
    values = np.array([[0, most // 4, most]]) * 255 // (2**depth - 1)
    np.testing.assert_array_equal(take(data, number=2)[0], values)
    raw = np.array([0, most // 4, most], ">u2").tobytes()
    new = data.open_input(save(Image.frombytes("I;16B", (3, 1), raw), "new.tif"))
    np.testing.assert_array_equal(new[torch.tensor([0])]["image"][0, 0], values)


@pytest.mark.parametrize(
    ("kind", "word"), [(np.uint16, "values up to 4095"), (np.uint8, "8: save it")]
)
def test_more_bits_than_training_has_are_refused(kind, word):
    path = save(np.full((4, 4), 255, kind))
    new = save(np.full((4, 4), 4095, np.uint16), "new.png")
    images = open_files([path, path]).open_input(new)
    assert word in refusal(images.take, *torch.zeros(2, 1).long())


def test_16_bits_of_pgm_are_scaled_by_the_greatest_value_that_the_file_names():
    values, path = np.array([[0, 75], [150, 300]]), Path("a.pgm")
    path.write_bytes(b"P5\n2 2\n300\n" + values.astype(">u2").tobytes())
    np.testing.assert_allclose(decoded(path)[0], values * 255 / 300, atol=1)


def test_one_image_with_colours_is_enough():
    files = [Path(f"{number}.png") for number in range(8)]
    for number, file in enumerate(files):
        write_image(file, mode="RGB" if number == 5 else "L")
    assert [open_files(some).image_shape for some in (files, files[:5])] == [(3, 8, 6), (1, 8, 6)]


@pytest.mark.parametrize(
    ("cache", "odd", "mode"), [("decoded", [131], "P"), ("none", [1, 131, 247], "RGB")]
)
def test_colours_that_were_not_looked_at(cache, odd, mode):
    """Among 250 grey images: never grey without a word."""
    write_images(Path("set/train"), 250, mode=lambda number: mode if number in odd else "L")

    def open_set(**settings):
        return prepared(make("set", cache=cache, **settings))

    message = refusal(open_set)
    assert message.startswith(f"data.mode: {len(odd)} of ")
    assert f"/{odd[0]:03}.png; set --data.mode RGB, or" in message
    dropped = open_set(bad_rows="drop")
    assert sum(dropped.sizes.values()) == 250 - len(odd)
    assert take(open_set(mode="RGB")).shape == (3, 8, 6)
    assert take(open_set(mode="L")).shape == (1, 8, 6)
    # Where not all are decoded before the first batch, that ends the run
    if cache == "none":
        data = open_set(normalize=[[0.5], [0.2]])
        message = refusal(lambda: [*data.batches("train"), *data.batches("val")])
        assert ".png: colours, and the others are grey: set --data.mode RGB; " in message
    # New images are as the model takes them
    new = dropped.open_input(f"set/train/b/{odd[0]:03}.png")
    assert new[torch.tensor([0])]["image"].shape == (1, 1, 8, 6)


def test_images_of_one_value_are_told(said):
    write_images(Path("train"), 8, value=lambda number: number % 3)
    prepared(make("."))
    assert any("the images are almost of one value; look at some" in line for line in said)


def test_ways_to_fit():
    array = np.zeros((4, 12, 3), dtype=np.uint8)
    array[:, 4:8] = 255
    path = save(array)
    assert decoded(path, image_size=(4, 4), resize="crop").min() == 255
    stretched = decoded(path, image_size=(4, 3), resize="stretch")
    assert stretched[:, :, 1].min() > stretched[:, :, 0].max()
    padded = decoded(path, image_size=(12, 12), resize="pad")
    assert padded[:, :4].max() == padded[:, 8:].max() == 0
    assert padded[:, 5:7, 5:7].min() == 255
