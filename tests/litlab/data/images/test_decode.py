"""Kinds of images, and how they get one size and mode."""

import io
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from litlab.data.images.decode import ImageMetadata, decode, examine
from litlab.data.images.files import find_images
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import write_image


def make_format(size, mode="RGB", resize=None) -> ImageMetadata:
    """A format; size is (height, width)."""
    shape = (1 if mode == "L" else 3, *size)
    return ImageMetadata(["a", "b"], shape, resize, 16, mean=[], std=[], generated=False)


def decoded(path, mode="RGB", size=(2, 2), resize=None) -> np.ndarray:
    array = decode(path, make_format(size, mode, resize))
    assert isinstance(array, np.ndarray), array
    assert array.dtype == np.uint8
    return array


def save(tmp_path, array, mode=None, name="image.png", **options):
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image = image.convert(mode) if mode else image
    image.save(tmp_path / name, **options)
    return tmp_path / name


def test_transparency_is_laid_on_white(tmp_path):
    array = np.array([[[10, 20, 30, 255], [10, 20, 30, 0]], [[0, 0, 0, 128], [1, 2, 3, 255]]], dtype=np.uint8)
    result = decoded(save(tmp_path, array))
    assert result[:, 0, 0].tolist() == [10, 20, 30]
    assert result[:, 0, 1].tolist() == [255, 255, 255]
    assert abs(int(result[0, 1, 0]) - 127) <= 1


def test_palette_cmyk_and_black_and_white(tmp_path):
    image = Image.new("P", (2, 2))
    image.putpalette([0, 0, 0, 250, 10, 20])
    image.putpixel((1, 0), 1)
    assert decoded(save(tmp_path, image))[:, 0, 1].tolist() == [250, 10, 20]
    assert decoded(save(tmp_path, image, transparency=1))[:, 0, 1].tolist() == [255, 255, 255]
    path = save(tmp_path, Image.new("CMYK", (2, 2), (0, 255, 255, 0)), name="image.tif")
    assert decoded(path)[:, 0, 0].tolist() == [255, 0, 0]
    path = save(tmp_path, np.array([[0, 255], [255, 0]], dtype=np.uint8), "1")
    assert decoded(path, "L").tolist() == [[[0, 255], [255, 0]]]


@pytest.mark.parametrize("name", ["image.jpg", "image.tif", "image.png", "image.webp", "image.avif"])
@pytest.mark.parametrize(
    ("orientation", "size", "white"),
    [
        (1, (4, 8), np.s_[:, :, :4]),
        (3, (4, 8), np.s_[:, :, 4:]),
        (6, (8, 4), np.s_[:, :4]),  # turned clockwise: the left half gets to the top
        (8, (8, 4), np.s_[:, 4:]),
    ],
)
def test_the_camera_was_turned(tmp_path, name, orientation, size, white):
    array = np.zeros((4, 8, 3), dtype=np.uint8)
    array[:, :4] = 255  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(
        tmp_path, array, name=name, exif=exif, **({"quality": 100} if name[-1] in "gpf" and "j" in name else {})
    )
    assert examine([path]) == ((3, *size), 16)
    result = decoded(path, size=size).astype(int)
    assert result[white].mean() > 240
    assert result.mean() == pytest.approx(127.5, abs=8)


def test_heic(tmp_path):
    pytest.importorskip("pillow_heif").register_heif_opener()
    path = save(tmp_path, np.full((64, 64, 3), 200, np.uint8), name="image.heic")
    assert abs(decoded(path, size=(64, 64)).astype(int) - 200).max() < 4
    assert find_images(tmp_path) == [path]


@pytest.mark.parametrize("broken", ["rational", "tag"])
def test_broken_exif_data_is_none(tmp_path, broken):
    array = np.random.default_rng(0).integers(0, 256, (4, 8, 3)).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "JPEG")
    plain = buffer.getvalue()
    # One entry: the resolution, a signed -1/0; or one of an impossible length and place.
    entry = (
        struct.pack("<HHII", 0x011A, 10, 1, 26) if broken == "rational" else struct.pack("<HHII", 0x0112, 99, 9, 9**9)
    )
    tiff = b"II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<Iii", 0, -1, 0)
    segment = b"Exif\0\0" + tiff
    (tmp_path / "a.jpg").write_bytes(
        plain[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + plain[2:]
    )
    (tmp_path / "b.jpg").write_bytes(plain)
    first, second = (decoded(tmp_path / name, size=(4, 8)) for name in ("a.jpg", "b.jpg"))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_16_bits_are_scaled_by_those_in_use(tmp_path, make, bits):
    """Also in prediction, by what the checkpoint says."""
    values = np.random.default_rng(0).integers(0, 2**bits, (40, 8, 6))
    values[:, 0, :2] = 0, 2**bits - 1
    for number, image in enumerate(values):
        folder = tmp_path / "scans/train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.astype(np.uint16)).save(folder / f"{number:02}.png")
    data = prepared(make(tmp_path / "scans", val_fraction=0.0))
    found = data.samples("train")[torch.tensor([0])]["image"][0, 0].numpy()
    expected = values[0] * 255 // (2**bits - 1)
    np.testing.assert_array_equal(found, expected)
    assert found.max() == 255
    data.load_state_dict(data.state_dict())
    new = data.open_input(str(tmp_path / "scans/train/a/00.png"))
    np.testing.assert_array_equal(new[torch.tensor([0])]["image"][0, 0], expected)


@pytest.mark.parametrize("settings", [{}, {"cache": "none"}])
def test_images_of_one_value_are_told(tmp_path, make, said, settings):
    for number in range(8):
        write_image(tmp_path / "dark/train" / "ab"[number % 2] / f"{number}.png", value=number % 3)
    prepared(make(tmp_path / "dark", **settings))
    assert any("the images are almost of one value; look at some" in line for line in said)


@pytest.mark.parametrize(("mode", "channels"), [(None, 3), ("L", 1)])
def test_one_image_with_colours_among_grey_ones(tmp_path, make, mode, channels):
    for number in range(8):
        write_image(tmp_path / "scans/train" / "ab"[number % 2] / f"{number}.png", mode="RGB" if number == 5 else "L")
    data = prepared(make(tmp_path / "scans", mode=mode))
    assert data.samples("train")[torch.arange(4)]["image"].shape == (4, channels, 8, 6)


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


def test_large_jpegs_are_decoded_no_finer_than_needed(tmp_path):
    path = save(tmp_path, Image.linear_gradient("L").resize((800, 800)), name="image.jpg", quality=95)
    exact = np.asarray(Image.linear_gradient("L").resize((20, 20), Image.Resampling.BILINEAR))
    assert abs(decoded(path, "L", (20, 20), "crop")[0].astype(int) - exact).max() < 4


def test_all_that_is_wrong_is_told_at_once(make, pets, said):
    (pets / "train/cat/03.png").write_bytes((pets / "train/cat/03.png").read_bytes()[:60])
    (pets / "train/cat/04.png").write_bytes(b"rubbish")
    Image.fromarray(np.ones((8, 6), dtype=np.float32)).save(pets / "train/cat/05.tif")
    write_image(pets / "train/cat/07.png", size=(9, 6))
    message = refusal(prepared, make(pets))
    assert message.startswith(f"data.path: 4 of 37 images can't be used: image {pets}/train/cat/03.png (")
    assert "04.png (not an image)" in message
    assert message.endswith(" and 1 more; correct or delete them, or use --data.bad_rows drop")
    assert "05.tif (32 bits per pixel of unknown range: save it with 8 or 16)" in message
    told = decode(pets / "train/cat/07.png", make_format((8, 6)))
    assert told == "9 x 6 pixels, not 8 x 6: set data.image_size"

    data = prepared(make(pets, bad_rows="drop", image_size=[8, 6], mode="RGB"))
    assert data.sizes == {"train": 25, "val": 3, "test": 6}
    assert said[-1].startswith("data.path: 3 of 37 images can't be used")
    assert data.samples("train").labels.bincount().tolist() == [16, 9]
