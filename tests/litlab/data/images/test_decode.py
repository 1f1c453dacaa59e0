"""Kinds of images, and how they get one size and mode."""

import struct

import numpy as np
import pytest
import torch
from PIL import Image

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import open_files, take, write_image


def save(tmp_path, image, name="image.png", **options):
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(tmp_path / name, **options)
    return tmp_path / name


def decoded(path, **settings) -> np.ndarray:
    """What an image becomes: uint8 (channel, height, width)."""
    return take(open_files([path, path], **settings))


def test_transparency_is_laid_on_white_and_palettes_and_cmyk_become_colours(tmp_path):
    array = np.array(
        [[[10, 20, 30, 255], [10, 20, 30, 0]], [[0, 0, 0, 128], [1, 2, 3, 255]]], dtype=np.uint8
    )
    result = decoded(save(tmp_path, array))
    assert result[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]
    assert abs(int(result[0, 1, 0]) - 127) <= 1
    palette, cmyk = Image.new("P", (2, 2), 1), Image.new("CMYK", (2, 2), (0, 255, 255, 0))
    palette.putpalette([0, 0, 0, 250, 10, 20])
    assert decoded(save(tmp_path, cmyk, "image.tif"))[:, 0, 0].tolist() == [255, 0, 0]
    for options, colour in (({}, [250, 10, 20]), ({"transparency": 1}, [255, 255, 255])):
        assert decoded(save(tmp_path, palette, **options))[:, 0, 0].tolist() == colour


@pytest.mark.parametrize(
    "name", ["image.jpg", "image.tif", "image.png", "image.webp", "image.avif"]
)
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
    result = decoded(save(tmp_path, array, name, exif=exif)).astype(int)
    assert result.shape == (3, *size)
    assert result[white].mean() > 240
    assert result.mean() == pytest.approx(127.5, abs=8)


@pytest.mark.parametrize(
    "entry",
    [(0x011A, 10, 1, 26), (0x0112, 99, 9, 9**9)],
    ids=["a signed -1/0", "of an impossible length and place"],
)
def test_broken_exif_data_is_none(tmp_path, entry):
    array = np.random.default_rng(0).integers(0, 256, (4, 8, 3)).astype(np.uint8)
    path = save(tmp_path, array, "a.jpg")
    plain, expected = path.read_bytes(), decoded(path)
    segment = b"Exif\0\0II*\0" + struct.pack("<IHHHIIIii", 8, 1, *entry, 0, -1, 0)
    path.write_bytes(
        plain[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + plain[2:]
    )
    np.testing.assert_array_equal(decoded(path), expected)


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_16_bits_are_scaled_by_those_in_use(tmp_path, bits):
    """Also in prediction, by what the checkpoint says."""
    values = np.random.default_rng(0).integers(0, 2**bits, (8, 6), np.uint16)
    values[0, :2] = 0, 2**bits - 1
    path = save(tmp_path, values)
    data = open_files([path, path])
    expected = values.astype(int)[None] * 255 // (2**bits - 1)
    np.testing.assert_array_equal(take(data), expected)
    dark = save(tmp_path, values // 4, "dark.png")
    new = data.open_input(str(dark))[torch.tensor([0])]
    np.testing.assert_array_equal(
        new["image"][0], values.astype(int)[None] // 4 * 255 // (2**bits - 1)
    )


@pytest.mark.parametrize("odd", [1, 131, 249])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_all_images_of_16_bits_are_looked_at(tmp_path, odd, bits):
    """250 images of 10 bits, but for one."""
    files = [tmp_path / f"{number:03}.png" for number in range(250)]
    for number, file in enumerate(files):
        top = 2**bits - 1 if number == odd else 1023
        Image.fromarray(np.array([[0, top], [top // 2, top // 4]], np.uint16)).save(file)
    data = open_files(files, cache_dir=str(tmp_path / "cache"))
    assert data.metadata.depth == max(10, bits)
    values = np.array([[0, 1023], [511, 255]]) * 255 // (2 ** max(10, bits) - 1)
    np.testing.assert_array_equal(take(data, number=2)[0], values)


@pytest.mark.parametrize(("deep", "word"), [(True, "values up to 4095"), (False, "8: save it")])
def test_more_bits_than_training_has_are_refused(tmp_path, deep, word):
    kind, top = (np.uint16, 1023) if deep else (np.uint8, 255)
    path = save(tmp_path, np.full((4, 4), top, kind))
    new = save(tmp_path, np.full((4, 4), 4095, np.uint16), "new.png")
    data = open_files([path, path], cache_dir=str(tmp_path / "cache"))
    images = data.open_input(str(new))
    assert word in refusal(images.take, *torch.zeros(2, 1).long())


@pytest.mark.parametrize("top", [300, 1023, 4095, 65535])
@pytest.mark.parametrize("kind", ["P5", "P2"])
def test_pgm_of_16_bits_is_scaled_by_what_it_says(tmp_path, top, kind):
    values = np.array([[0, top // 4], [top // 2, top]])
    plain = " ".join(map(str, values.ravel())).encode()
    pixels = values.astype(">u2").tobytes() if kind == "P5" else plain
    path = tmp_path / "a.pgm"
    path.write_bytes(f"{kind}\n2 2\n{top}\n".encode() + pixels)
    np.testing.assert_allclose(decoded(path)[0], values * 255 / top, atol=1)


def test_tiff_of_16_bits_from_the_other_end(tmp_path):
    values = np.array([[0, 1000], [30_000, 65_535]])
    image = Image.frombytes("I;16B", (2, 2), values.astype(">u2").tobytes())
    np.testing.assert_array_equal(
        decoded(save(tmp_path, image, "a.tif"))[0], values * 255 // 65_535
    )


@pytest.mark.parametrize("normalize", ["imagenet", [[0.5, 0.5, 0.5], [0.2, 0.2, 0.2]]])
def test_colours_are_normalised_by_as_many_as_there_are(tmp_path, normalize):
    files = [tmp_path / f"{number}.png" for number in range(8)]
    for file in files:
        write_image(file, mode="L")
    message = refusal(open_files, files, normalize=normalize)
    assert message.startswith("data.normalize: it has means and deviations of 3 channels, and ")
    assert message.endswith("set --data.mode RGB, or as many as there are")
    open_files(files, normalize=normalize, mode="RGB")


def test_one_image_with_colours_among_grey_ones(tmp_path):
    files = [tmp_path / f"{number}.png" for number in range(8)]
    for number, file in enumerate(files):
        write_image(file, mode="RGB" if number == 5 else "L")
    assert [open_files(some).image_shape for some in (files, files[:5])] == [(3, 8, 6), (1, 8, 6)]


@pytest.mark.parametrize("cache", ["decoded", "none"])
@pytest.mark.parametrize(("odd", "mode"), [([131], "P"), ([1, 131, 247], "RGB")])
def test_colours_that_were_not_looked_at(tmp_path, make, cache, odd, mode):
    """Among 250 grey images: never grey without a word."""
    for number in range(250):
        kind = mode if number in odd else "L"
        image = Image.new(kind, (6, 8), number if kind in "LP" else (number, 9, 0, 0)[: len(kind)])
        folder = tmp_path / "set/train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number:03}.tif")
    message = refusal(prepared, make(tmp_path / "set", cache=cache))
    assert message.startswith(f"data.mode: {len(odd)} of ")
    assert f"/{odd[0]:03}.tif; set --data.mode RGB, or" in message
    dropped = prepared(make(tmp_path / "set", cache=cache, bad_rows="drop"))
    assert sum(dropped.sizes.values()) == 250 - len(odd)
    for chosen, channels in (("RGB", 3), ("L", 1)):
        data = prepared(make(tmp_path / "set", cache=cache, mode=chosen))
        assert sum(data.sizes.values()) == 250
        assert take(data).shape == (channels, 8, 6)
    # Where not all are decoded before the first batch, that ends the run
    if cache == "none":
        data = prepared(make(tmp_path / "set", cache=cache, normalize=[[0.5], [0.2]]))
        message = refusal(lambda: [*data.batches("train"), *data.batches("val")])
        assert ".tif: colours, and the others are grey: set --data.mode RGB; " in message
    # New images are as the model takes them
    dropped.predict_input = str(tmp_path / f"set/train/b/{odd[0]:03}.tif")
    (new,) = dropped.open_input(dropped.predict_input)[torch.tensor([0])]["image"]
    assert new.shape == (1, 8, 6)


@pytest.mark.parametrize("cache", ["decoded", "none"])
def test_images_of_one_value_are_told(tmp_path, make, said, cache):
    for number in range(8):
        write_image(tmp_path / "dark/train" / "ab"[number % 2] / f"{number}.png", value=number % 3)
    prepared(make(tmp_path / "dark", cache=cache))
    assert any("the images are almost of one value; look at some" in line for line in said)


def test_ways_to_fit(tmp_path):
    array = np.zeros((4, 12, 3), dtype=np.uint8)
    array[:, 4:8] = 255
    path = save(tmp_path, array)
    assert decoded(path, image_size=(4, 4), resize="crop").min() == 255
    stretched = decoded(path, image_size=(4, 3), resize="stretch")
    assert stretched[:, :, 1].min() > stretched[:, :, 0].max()
    padded = decoded(path, image_size=(12, 12), resize="pad")
    assert padded[:, :4].max() == padded[:, 8:].max() == 0
    assert padded[:, 5:7, 5:7].min() == 255
