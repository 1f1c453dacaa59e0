"""The fingerprint tells data from other data, wherever they lie: a resumed run is refused by it."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from litlab.data import ImageData, SeriesData, TabularData, TextData
from tests.litlab.data.conftest import prepared


def edit_text(folder: Path) -> None:
    frame = pd.read_csv(folder / "texts.csv")
    frame.loc[3, "text"] = "sun"
    frame.to_csv(folder / "texts.csv", index=False)


def edit_number(folder: Path) -> None:
    frame = pd.read_csv(folder / "series.csv")
    frame.loc[700, "load"] += 1
    frame.to_csv(folder / "series.csv", index=False)


def edit_image(folder: Path) -> None:
    file = folder / "train/class_3/0.png"
    Image.open(file).convert("L").convert("RGB").save(file)


@pytest.mark.parametrize(
    ("kind", "source", "settings", "edit"),
    [
        (ImageData, "images", {}, edit_image),
        (ImageData, "images", {"cache": "none"}, edit_image),
        (TextData, "texts", {}, edit_text),
        (SeriesData, "series", {"targets": ["load"]}, edit_number),
        (TabularData, "series", {"target": "load", "ignore": ["date"]}, edit_number),
    ],
)
def test_it_changes_with_the_data_and_not_with_the_place(
    kind, source, settings, edit, request, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = request.getfixturevalue(source)
    is_folder = path.is_dir()

    def read(folder: Path) -> str:
        where = folder if is_folder else folder / path.name
        return prepared(kind(path=str(where), **settings)).fingerprint

    for name in ("here", "there"):
        shutil.copytree(path if is_folder else path.parent, name, copy_function=shutil.copyfile)
    first = read(Path("here"))
    assert first
    assert read(Path("there")) == first
    edit(Path("there"))
    assert read(Path("there")) != first
