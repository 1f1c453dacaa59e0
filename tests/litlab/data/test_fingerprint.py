"""The fingerprint tells data from other data, wherever they lie: a resumed run is refused by it."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from litlab.data import ImageData, SeriesData, TabularData, TextData
from tests.litlab.data.conftest import prepared


@pytest.mark.parametrize(
    ("kind", "source", "settings"),
    [
        (ImageData, "images", {}),
        (ImageData, "images", {"cache": "none"}),
        (TextData, "texts", {}),
        (SeriesData, "series", {"targets": ["load"]}),
        (TabularData, "series", {"target": "load", "ignore": ["date"]}),
    ],
)
def test_it_changes_with_the_data_and_not_with_the_place(kind, source, settings, request):
    path = request.getfixturevalue(source)
    inside = "" if path.is_dir() else path.name

    def read(folder: str) -> str:
        return prepared(kind(path=Path(folder, inside), **settings)).fingerprint

    for name in ("here", "there"):
        shutil.copytree(path.parent if inside else path, name, copy_function=shutil.copyfile)
    first = read("here")
    assert first
    assert read("there") == first
    if inside:
        file = Path("there", inside)
        file.write_text(file.read_text().replace("rain", "sun").replace("99.", "98."))
    else:
        file = Path("there/train/class_3/0.png")
        Image.open(file).convert("L").convert("RGB").save(file)
    assert read("there") != first
