"""Kinds of images, and how they get one size and mode."""

import shutil
from functools import partial

import numpy as np
from PIL import Image

from litlab.data.images.decode import ImageFormat, decode_file
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import folder_data

refused = partial(refusal, prepared)


def decoded(path, mode="RGB", size=(2, 2), resize=None) -> np.ndarray:
    array = decode_file(path, ImageFormat(*size, mode, resize, convert=True))
    assert isinstance(array, np.ndarray), array
    assert array.dtype == np.uint8
    return array


def save(tmp_path, array, mode=None, name="image.png", **options):
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image = image.convert(mode) if mode else image
    image.save(tmp_path / name, **options)
    return tmp_path / name


def test_16_bits_are_scaled(tmp_path):
    path = save(tmp_path, np.array([[0, 257], [32896, 65535]], dtype=np.uint16))
    assert decoded(path, "L").tolist() == [[[0, 1], [128, 255]]]
    assert decoded(path).tolist() == [[[0, 1], [128, 255]]] * 3


def test_transparency_is_laid_on_white(tmp_path):
    array = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]], [[0, 0, 0, 128], [1, 2, 3, 255]]], dtype=np.uint8)
    result = decoded(save(tmp_path, array))
    assert result[:, 0, 0].tolist() == [10, 20, 30]
    assert result[:, 0, 1].tolist() == [255, 255, 255]
    assert abs(int(result[0, 1, 0]) - 127) <= 1


def test_palette(tmp_path):
    image = Image.new("P", (2, 2))
    image.putpalette([0, 0, 0, 250, 10, 20])
    image.putpixel((1, 0), 1)
    assert decoded(save(tmp_path, image))[:, 0, 1].tolist() == [250, 10, 20]
    assert decoded(save(tmp_path, image, transparency=1))[:, 0, 1].tolist() == [255, 255, 255]


def test_cmyk_and_black_and_white(tmp_path):
    path = save(tmp_path, Image.new("CMYK", (2, 2), (0, 255, 255, 0)), name="image.tif")
    assert decoded(path)[:, 0, 0].tolist() == [255, 0, 0]
    path = save(tmp_path, np.array([[0, 255], [255, 0]], dtype=np.uint8), "1")
    assert decoded(path, "L").tolist() == [[[0, 255], [255, 0]]]


def test_the_camera_was_turned(tmp_path, make_data):
    pixels = np.zeros((4, 8, 3), dtype=np.uint8)
    pixels[:, :4] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: the left half gets to the top
    path = save(tmp_path, pixels, name="image.jpg", exif=exif, quality=100)
    result = decoded(path, size=(8, 4))
    assert result[:, :4].min() > 250
    assert result[:, 4:].max() < 5
    for name in "ab":
        (tmp_path / "pets" / "train" / name).mkdir(parents=True)
        shutil.copy(path, tmp_path / "pets" / "train" / name)
    assert folder_data(make_data, tmp_path / "pets").image_shape == (3, 8, 4)


def test_ways_to_fit(tmp_path):
    pixels = np.zeros((4, 12, 3), dtype=np.uint8)
    pixels[:, 4:8] = 255
    path = save(tmp_path, pixels)
    assert decoded(path, size=(4, 4), resize="crop").min() == 255
    stretched = decoded(path, size=(4, 3), resize="stretch")
    assert stretched[:, :, 1].min() > stretched[:, :, 0].max()
    padded = decoded(path, size=(12, 12), resize="pad")
    assert padded[:, :4].max() == padded[:, 8:].max() == 0
    assert padded[:, 5:7, 5:7].min() == 255


def test_large_jpegs_are_decoded_no_finer_than_needed(tmp_path):
    path = save(tmp_path, Image.linear_gradient("L").resize((800, 800)), name="image.jpg", quality=95)
    exact = np.asarray(Image.linear_gradient("L").resize((20, 20), Image.Resampling.BILINEAR))
    assert abs(decoded(path, "L", (20, 20), "crop")[0].astype(int) - exact).max() < 4


def test_32_bits_are_refused(make_data, image_folder):
    path = image_folder / "train" / "cat" / "07.tif"
    Image.fromarray(np.ones((8, 6), dtype=np.float32)).save(path)
    message = refused(folder_data(make_data, image_folder, mode="RGB"))
    assert message.startswith(f"{path}: unreadable image (32 bits per pixel of unknown range: save it with 8 or 16); ")
