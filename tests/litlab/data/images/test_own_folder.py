"""The user's own folder: what is accepted, and the one line that names what is not."""

import os
import re
import shutil
from functools import partial

import pytest

from litlab.data.images.decode import decode_file
from litlab.errors import UserError
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.images.conftest import folder_data, write_image

refused = partial(refusal, prepared)


def test_folder_without_test_fails_only_when_test_is_asked_for(make_data, image_folder):
    shutil.rmtree(image_folder / "test")
    data = prepared(folder_data(make_data, image_folder))
    assert not data.has_test
    assert refused(data, "test") == f"data.path: {image_folder} has no test images; add some"


def test_missing_folders(make_data, tmp_path):
    expected = "images belong in folders <path>/train/<class>/"
    root = tmp_path / "pets"
    assert refused(folder_data(make_data, root)) == f"data.path: there is no folder {root}; {expected}"
    root.mkdir()
    assert refused(folder_data(make_data, root)) == (
        f"data.path: {root} has no folder train/; {expected}, and optionally val/ and test/ like it"
    )
    write_image(root / "train" / "cat" / "1.png")
    assert refused(folder_data(make_data, root)).startswith(
        f"data.path: {root / 'train'} has 1 class folders, at least 2"
    )


@pytest.mark.parametrize("name", ["ant", "zebra"])
def test_empty_class(make_data, image_folder, name):
    (image_folder / "train" / name).mkdir()
    (image_folder / "train" / name / "notes.txt").write_text("no image")
    message = refused(folder_data(make_data, image_folder))
    assert message.startswith(f"{image_folder / 'train' / name}: no images in this class (.jpg, ")
    assert message.endswith("; add some or delete the folder")


def test_class_that_train_lacks(make_data, image_folder):
    write_image(image_folder / "test" / "cow" / "1.png")
    assert refused(folder_data(make_data, image_folder)) == (
        f"{image_folder / 'test' / 'cow'}: this class is not in {image_folder / 'train'}; add or delete it"
    )


def test_hidden_files_other_files_and_subfolders(make_data, image_folder):
    (image_folder / "train" / "cat" / ".DS_Store").write_bytes(b"x")
    (image_folder / "train" / "cat" / "._1.png").write_bytes(b"x")
    (image_folder / "train" / ".thumbnails").mkdir()
    write_image(image_folder / "train" / "cat" / "more" / "deep.PNG")
    data = prepared(folder_data(make_data, image_folder, val_fraction=0.0))
    assert data.sizes == {"train": 31, "test": 6}


def test_numbers_as_classes_are_in_numerical_order(make_data, tmp_path):
    for name in ("10", "9", "1"):
        write_image(tmp_path / "digits" / "train" / name / "1.png")
    assert folder_data(make_data, tmp_path / "digits").class_names == ["1", "9", "10"]


def test_corrupt_images_are_counted_and_the_first_is_named(make_data, image_folder):
    (image_folder / "train" / "cat" / "03.png").write_bytes(b"rubbish")
    path = image_folder / "train" / "dog" / "05.png"
    assert refused(folder_data(make_data, image_folder)) == (
        f"{image_folder}/train/cat/03.png: unreadable image (not an image); replace or delete it, or use "
        f"--data.bad_rows drop"
    )
    path.write_bytes(path.read_bytes()[:60])
    assert refused(folder_data(make_data, image_folder)).startswith(
        f"{image_folder}: 2 of 36 images can't be used: {image_folder}/train/cat/03.png (unreadable image (not an "
        f"image)), {path} (unreadable image ("
    )
    (image_folder / "train" / "cat" / "03.png").unlink()
    assert refused(folder_data(make_data, image_folder)).startswith(f"{path}: unreadable image (")
    assert not list(folder_data(make_data, image_folder).cache_dir.glob("[!.]*"))


def test_mixed_sizes_and_modes(make_data, image_folder):
    odd = image_folder / "train" / "cat" / "07.png"
    write_image(odd, size=(9, 6))
    assert refused(folder_data(make_data, image_folder)) == (
        f"{odd} is 9 x 6 pixels, the others 8 x 6; give one (height, width) for all: --data.image_size '[8, 6]'"
    )
    assert prepared(folder_data(make_data, image_folder, image_size=(8, 6))).sizes["train"] == 27
    write_image(odd, mode="L")
    assert refused(folder_data(make_data, image_folder)) == (
        f"{odd} is grey, the others colour; choose one for all: --data.mode RGB (or L)"
    )
    data = prepared(folder_data(make_data, image_folder, mode="L"))
    assert data.image_shape == (1, 8, 6)
    assert data.train_dataloader().dataset.images.shape == (27, 1, 8, 6)


def test_cache_is_used_and_rebuilt_when_the_source_or_an_option_changes(make_data, image_folder, monkeypatch, caplog):
    def decodes(**options) -> int:
        decoded = []
        monkeypatch.setattr(
            "litlab.data.images.decode.decode_file", lambda *a, **k: decoded.append(1) or decode_file(*a, **k)
        )
        prepared(folder_data(make_data, image_folder, **options))
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
    for file in folder_data(make_data, image_folder).cache_dir.glob("*/train_images.npy"):
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


def test_predicting_unreadable_files(make_data, image_folder, tmp_path):
    data = prepared(folder_data(make_data, image_folder))
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
