"""Kinds of images, and how they get one size and mode."""

import io
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from litlab.data.images.decode import ImageMetadata, decode, examine
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import write_image


def decoded(path, mode="RGB", size=(2, 2), resize=None) -> np.ndarray:
    """What an image becomes; size is (height, width)."""
    shape = (1 if mode == "L" else 3, *size)
    array = decode(path, ImageMetadata(["a", "b"], shape, resize, 16, mean=[], std=[], generated=False))
    assert isinstance(array, np.ndarray), array
    assert array.dtype == np.uint8
    return array


def save(tmp_path, image, name="image.png", **options):
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(tmp_path / name, **options)
    return tmp_path / name


def test_transparency_is_laid_on_white_and_palettes_and_cmyk_become_colours(tmp_path):
    array = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]], [[0, 0, 0, 128], [1, 2, 3, 255]]], dtype=np.uint8)
    result = decoded(save(tmp_path, array))
    assert result[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]
    assert abs(int(result[0, 1, 0]) - 127) <= 1
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 250, 10, 20])
    cmyk = save(tmp_path, Image.new("CMYK", (2, 2), (0, 255, 255, 0)), "image.tif")
    assert decoded(cmyk)[:, 0, 0].tolist() == [255, 0, 0]
    for options, colour in (({}, [250, 10, 20]), ({"transparency": 1}, [255, 255, 255])):
        assert decoded(save(tmp_path, image, **options))[:, 0, 0].tolist() == colour


@pytest.mark.parametrize("name", ["image.jpg", "image.tif", "image.png", "image.webp", "image.avif"])
@pytest.mark.parametrize(
    ("orientation", "size", "white"),
    [
        (3, (4, 8), np.s_[:, :, 4:]),
        (6, (8, 4), np.s_[:, :4]),  # turned clockwise: the left half gets to the top
    ],
)
def test_the_camera_was_turned(tmp_path, name, orientation, size, white):
    array = np.zeros((4, 8, 3), dtype=np.uint8)
    array[:, :4] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path, array, name, exif=exif, **({"quality": 100} if name.endswith("jpg") else {}))
    assert examine([path]) == ((3, *size), 16)
    result = decoded(path, size=size).astype(int)
    assert result[white].mean() > 240
    assert result.mean() == pytest.approx(127.5, abs=8)


@pytest.mark.parametrize(
    "entry", [(0x011A, 10, 1, 26), (0x0112, 99, 9, 9**9)], ids=["a signed -1/0", "of an impossible length and place"]
)
def test_broken_exif_data_is_none(tmp_path, entry):
    array = np.random.default_rng(0).integers(0, 256, (4, 8, 3)).astype(np.uint8)
    path = save(tmp_path, array, "a.jpg")
    plain, buffer = path.read_bytes(), io.BytesIO(b"Exif\0\0II*\0")
    buffer.seek(0, io.SEEK_END)
    buffer.write(struct.pack("<IHHHIIIii", 8, 1, *entry, 0, -1, 0))
    segment = buffer.getvalue()
    expected = decoded(path, size=(4, 8))
    path.write_bytes(plain[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + plain[2:])
    np.testing.assert_array_equal(decoded(path, size=(4, 8)), expected)


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_16_bits_are_scaled_by_those_in_use(tmp_path, make, bits):
    """Also in prediction, by what the checkpoint says."""
    values = np.random.default_rng(0).integers(0, 2**bits, (40, 8, 6))
    values[:, 0, :2] = 0, 2**bits - 1
    for number, image in enumerate(values):
        folder = tmp_path / "scans/train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        save(folder, image.astype(np.uint16), f"{number:02}.png")
    data = prepared(make(tmp_path / "scans", val_fraction=0.0))
    expected = values[0] * 255 // (2**bits - 1)
    np.testing.assert_array_equal(data.samples("train")[torch.tensor([0])]["image"][0, 0], expected)
    new = data.open_input(str(tmp_path / "scans/train/a/00.png"))
    np.testing.assert_array_equal(new[torch.tensor([0])]["image"][0, 0], expected)


@pytest.mark.parametrize("settings", [{}, {"cache": "none"}])
def test_images_of_one_value_are_told(tmp_path, make, said, settings):
    for number in range(8):
        write_image(tmp_path / "dark/train" / "ab"[number % 2] / f"{number}.png", value=number % 3)
    prepared(make(tmp_path / "dark", **settings))
    assert any("the images are almost of one value; look at some" in line for line in said)


def test_one_image_with_colours_among_grey_ones(tmp_path, make):
    for number in range(8):
        write_image(tmp_path / "scans/train" / "ab"[number % 2] / f"{number}.png", mode="RGB" if number == 5 else "L")
    assert prepared(make(tmp_path / "scans")).metadata.image_shape == (3, 8, 6)


def test_ways_to_fit(tmp_path):
    array = np.zeros((4, 12, 3), dtype=np.uint8)
    array[:, 4:8] = 255
    path = save(tmp_path, array)
    assert decoded(path, size=(4, 4), resize="crop").min() == 255
    stretched = decoded(path, size=(4, 3), resize="stretch")
    assert stretched[:, :, 1].min() > stretched[:, :, 0].max()
    padded = decoded(path, size=(12, 12), resize="pad")
    assert padded[:, :4].max() == padded[:, 8:].max() == 0
    assert padded[:, 5:7, 5:7].min() == 255


def test_all_that_is_wrong_is_told_at_once(make, pets, said):
    cats = pets / "train/cat"
    (cats / "03.png").write_bytes((cats / "03.png").read_bytes()[:60])
    (cats / "04.png").write_bytes(b"rubbish")
    Image.fromarray(np.ones((8, 6), dtype=np.float32)).save(cats / "05.tif")
    write_image(cats / "07.png", size=(9, 6))
    message = refusal(prepared, make(pets, mode="RGB"))
    for part in ("data.path: 4 of 37 images can't be used: image", "03.png (", "04.png (not an image)", " and 1 more"):
        assert part in message
    data = prepared(make(pets, bad_rows="drop", image_size=[8, 6], mode="RGB"))
    assert data.sizes == {"train": 25, "val": 3, "test": 6}
    assert said[-1].startswith("data.path: 3 of 37 images can't be used")
    assert data.samples("train").labels.bincount().tolist() == [16, 9]
