"""The user's own files: what is accepted, and the one line that names what is not."""

import os
import re
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from litlab.data.images.decode import ImageFormat, decode_file
from litlab.errors import UserError
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import write_image

refused = partial(refusal, prepared)


# ---- folders


def folder(make_data, root, **options):
    return make_data(dataset="folder", path=str(root), **options)


def test_folder_without_test_fails_only_when_test_is_asked_for(make_data, image_folder):
    shutil.rmtree(image_folder / "test")
    data = prepared(folder(make_data, image_folder))
    assert not data.has_test
    assert refused(data, "test") == f"data.path: {image_folder} has no test images; add some"


def test_missing_folders(make_data, tmp_path):
    expected = "images belong in folders <path>/train/<class>/"
    root = tmp_path / "pets"
    assert refused(folder(make_data, root)) == f"data.path: there is no folder {root}; {expected}"
    root.mkdir()
    assert refused(folder(make_data, root)) == (
        f"data.path: {root} has no folder train/; {expected}, and optionally val/ and test/ like it"
    )
    write_image(root / "train" / "cat" / "1.png")
    assert refused(folder(make_data, root)).startswith(f"data.path: {root / 'train'} has 1 class folders, at least 2")


@pytest.mark.parametrize("name", ["ant", "zebra"])
def test_empty_class(make_data, image_folder, name):
    (image_folder / "train" / name).mkdir()
    (image_folder / "train" / name / "notes.txt").write_text("no image")
    message = refused(folder(make_data, image_folder))
    assert message.startswith(f"{image_folder / 'train' / name}: no images in this class (.jpg, ")
    assert message.endswith("; add some or delete the folder")


def test_class_that_train_lacks(make_data, image_folder):
    write_image(image_folder / "test" / "cow" / "1.png")
    assert refused(folder(make_data, image_folder)) == (
        f"{image_folder / 'test' / 'cow'}: this class is not in {image_folder / 'train'}; add or delete it"
    )


def test_hidden_files_other_files_and_subfolders(make_data, image_folder):
    (image_folder / "train" / "cat" / ".DS_Store").write_bytes(b"x")
    (image_folder / "train" / "cat" / "._1.png").write_bytes(b"x")
    (image_folder / "train" / ".thumbnails").mkdir()
    write_image(image_folder / "train" / "cat" / "more" / "deep.PNG")
    data = prepared(folder(make_data, image_folder, val_fraction=0.0))
    assert data.sizes == {"train": 31, "test": 6}


def test_numbers_as_classes_are_in_numerical_order(make_data, tmp_path):
    for name in ("10", "9", "1"):
        write_image(tmp_path / "digits" / "train" / name / "1.png")
    assert folder(make_data, tmp_path / "digits").class_names == ["1", "9", "10"]


def test_corrupt_images_are_counted_and_the_first_is_named(make_data, image_folder):
    (image_folder / "train" / "cat" / "03.png").write_bytes(b"rubbish")
    path = image_folder / "train" / "dog" / "05.png"
    assert refused(folder(make_data, image_folder)) == (
        f"{image_folder}/train/cat/03.png: unreadable image (not an image); replace or delete it, or set data.bad_rows "
        f"to drop"
    )
    path.write_bytes(path.read_bytes()[:60])
    assert refused(folder(make_data, image_folder)).startswith(
        f"{image_folder}: 2 of 36 images can't be used: {image_folder}/train/cat/03.png (unreadable image (not an "
        f"image)), {path} (unreadable image ("
    )
    (image_folder / "train" / "cat" / "03.png").unlink()
    assert refused(folder(make_data, image_folder)).startswith(f"{path}: unreadable image (")
    assert not list(folder(make_data, image_folder).cache_dir.glob("[!.]*"))


def test_mixed_sizes_and_modes(make_data, image_folder):
    odd = image_folder / "train" / "cat" / "07.png"
    write_image(odd, size=(9, 6))
    assert refused(folder(make_data, image_folder)) == (
        f"{odd} is 9 x 6 pixels, the others 8 x 6; give one (height, width) for all: --data.image_size '[8, 6]'"
    )
    assert prepared(folder(make_data, image_folder, image_size=(8, 6))).sizes["train"] == 27
    write_image(odd, mode="L")
    assert refused(folder(make_data, image_folder)) == (
        f"{odd} is grey, the others colour; choose one for all: --data.mode RGB (or L)"
    )
    data = prepared(folder(make_data, image_folder, mode="L"))
    assert data.image_shape == (1, 8, 6)
    assert data.train_dataloader().dataset.images.shape == (27, 1, 8, 6)


def test_cache_is_used_and_rebuilt_when_the_source_or_an_option_changes(make_data, image_folder, monkeypatch, caplog):
    def decodes(**options) -> int:
        decoded = []
        monkeypatch.setattr(
            "litlab.data.images.decode.decode_file", lambda *a, **k: decoded.append(1) or decode_file(*a, **k)
        )
        prepared(folder(make_data, image_folder, **options))
        return len(decoded)

    assert decodes() == 36
    assert decodes() == 0
    assert decodes(val_fraction=0.3, seed=3, batch_size=2) == 0
    assert decodes(image_size=(4, 4)) == 36
    os.utime(image_folder / "train" / "cat" / "01.png", (1, 1))
    assert decodes() == 36
    (image_folder / "train" / "cat" / "01.png").unlink()
    assert decodes() == 35
    assert decodes() == 0
    for file in folder(make_data, image_folder).cache_dir.glob("*/train_images.npy"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    with caplog.at_level("INFO", "lightning.pytorch"):
        caplog.clear()
        assert decodes() == 35
    assert [
        r.getMessage()
        for r in caplog.records
        if "the cache is damaged (train_images.npy has changed)" in r.getMessage()
    ]
    assert decodes() == 0


# ---- CSV files


@pytest.fixture
def table(tmp_path):
    """Writes a CSV file; 20 images 0.png to 19.png lie beside it."""
    for i in range(20):
        write_image(tmp_path / "csv" / "images" / f"{i}.png", seed=i)

    def write(text: str | bytes):
        path = tmp_path / "csv" / "pets.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


REMEDY = "; correct or delete the row, or set data.bad_rows to drop"
ROWS = [f"images/{i}.png,{'cat' if i % 2 else 'dog'}" for i in range(20)]


def from_csv(make_data, path, **options):
    return make_data(dataset="csv", path=str(path), **options)


def test_csv_without_splits_is_split_by_class(make_data, table):
    data = prepared(from_csv(make_data, table("file,label\n" + "\n".join(ROWS))), None)
    assert data.class_names == ["cat", "dog"]
    assert data.sizes == {"train": 16, "val": 2, "test": 2}
    assert data.has_test
    rows = {split: data.samples(split).labels.bincount().tolist() for split in data.sizes}
    assert rows == {"train": [8, 8], "val": [1, 1], "test": [1, 1]}


def test_csv_of_excel_with_other_columns_and_splits(make_data, table):
    split = ["train"] * 10 + ["val"] * 4 + ["test"] * 6
    rows = [f'"{row.split(",")[0]}",note,{row.split(",")[1]},{s}' for row, s in zip(ROWS, split, strict=True)]
    text = "\ufeffimage,comment,class,part\r\n" + "\r\n".join(rows)  # with a byte order mark
    options = {"file_column": "image", "label_column": "class", "split_column": "part"}
    data = prepared(from_csv(make_data, table(text), **options), None)
    assert data.sizes == {"train": 10, "val": 4, "test": 6}
    assert data.samples("test").labels.tolist() == [1, 0] * 3
    with Image.open(table(text).parent / "images" / "14.png") as image:
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    assert data.samples("test")[torch.tensor([0])]["image"][0].equal(expected)


def test_csv_splits_without_test(make_data, table):
    path = table("file,label,split\n" + "\n".join(row + ",train" for row in ROWS))
    data = prepared(from_csv(make_data, path, split_column="split"))
    assert data.sizes == {"train": 18, "val": 2}
    assert refused(data, "test") == f"data.path: {path} has no test images; add some"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "name,label\nimages/0.png,cat\n",
            {},
            "{path}: there is no column 'file', only 'name', 'label'; set --data.file_column NAME",
        ),
        (
            "file;label\nimages/0.png;cat\n",
            {},
            "{path}: there is no column 'file', only 'file;label'; separate the values by commas, "
            "and decimals by points",
        ),
        (
            "file,label\n" + ROWS[0],
            {"split_column": "part"},
            "{path}: there is no column 'part', only 'file', 'label'; set --data.split_column NAME",
        ),
        ("", {}, "{path}: there is no column 'file', only an empty file; set --data.file_column NAME"),
        ("file,label\n", {}, "{path}: no rows below the header; add one per image"),
        (
            f"file,label\n{ROWS[0]}\n{ROWS[1]}\nimages/2.png,\n",
            {},
            "{path}, row 4: label is empty" + REMEDY,
        ),
        (
            f"file,label\n{ROWS[0]}\nimages/2.png\n",
            {},
            "{path}, row 3: 1 field instead of 2: put texts with commas or line breaks into double quotes" + REMEDY,
        ),
        (
            f"file,label\n{ROWS[0]}\nimages/gone.png,cat\n{ROWS[1]}\nimages/too.png,cat\n",
            {},
            "{path}: 2 of 4 rows can't be used: row 3 ('images/gone.png': no such file), row 5 "
            "('images/too.png': no such file); correct or delete them, or set data.bad_rows to drop",
        ),
        (
            f"file,label,split\n{ROWS[0]},train\n{ROWS[1]},Train\n",
            {"split_column": "split"},
            "{path}, row 3: split is 'Train', not train, val or test" + REMEDY,
        ),
        (
            f"file,label,split\n{ROWS[0]},train\n{ROWS[1]},train\nimages/2.png,cow,test\n",
            {"split_column": "split"},
            "{path}, row 4: class 'cow' is in test, but not in train" + REMEDY,
        ),
        (
            f"file,label,split\n{ROWS[0]},val\n",
            {"split_column": "split"},
            "{path}: no row has split train; mark the training images",
        ),
        (f"file,label\n{ROWS[0]}\n", {}, "{path}: column label has only the class 'dog'; at least 2 are needed"),
        (
            "file,label\nimages/0.png,Köter\n".encode("latin-1"),
            {},
            "{path}: 1 of 1 rows can't be used: row 2 (not UTF-8, byte 0xf6: save it as UTF-8 (in spreadsheets: "
            "CSV UTF-8)); correct or delete the row",
        ),
        (
            'file,label\nimages/0.png,"cat\n',
            {},
            "{path}, row 2: broken quoting (a double quote is opened and never closed); quotes inside a quoted text "
            "are written twice",
        ),
    ],
)
def test_what_a_csv_can_have_wrong(make_data, table, text, options, message):
    path = table(text)
    assert refused(from_csv(make_data, path, **options)) == message.format(path=path, root=path.parent)


def test_csv_that_is_not_there(make_data, tmp_path):
    path = tmp_path / "gone.csv"
    assert refused(from_csv(make_data, path)) == f"data.path: there is no file {path}"


# ---- kinds of images


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
    assert folder(make_data, tmp_path / "pets").image_shape == (3, 8, 4)


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
    message = refused(folder(make_data, image_folder, mode="RGB"))
    assert message.startswith(f"{path}: unreadable image (32 bits per pixel of unknown range: save it with 8 or 16); ")


def test_predicting_unreadable_files(make_data, image_folder, tmp_path):
    data = prepared(folder(make_data, image_folder))
    data.load_state_dict(data.state_dict())
    (tmp_path / "photo.png").write_bytes(b"rubbish")
    data.predict_input = str(tmp_path / "*.png")
    message = f"1 of 1 images can't be used: {tmp_path}/photo.png (unreadable image (not an image)); replace"
    with pytest.raises(UserError, match=re.escape(message)):
        next(iter(data.predict_dataloader()))
    data.predict_input = str(tmp_path / "*.jpg")
    with pytest.raises(UserError, match=r"^--input .*: no such file or folder, and no pattern that fits any image"):
        data.predict_dataloader()
    (tmp_path / "empty").mkdir()
    data.predict_input = str(tmp_path / "empty")
    with pytest.raises(UserError, match=r"^--input .*: no images in it \(\.jpg"):
        data.predict_dataloader()
