"""The fingerprint tells data from other data, wherever they lie: a resumed run is refused by it."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from litlab.data import ImageData, SeriesData, TabularData, TextData

KINDS = {
    "images": lambda path: ImageData(dataset="folder", path=str(path)),
    "lazy": lambda path: ImageData(dataset="folder", path=str(path), cache="none"),
    "texts": lambda path: TextData(path=str(path), cache_dir=str(path.parent / "cache")),
    "series": lambda path: SeriesData(path=str(path), targets=["load"]),
    "table": lambda path: TabularData(
        dataset="csv", path=str(path), target="load", ignore=["date"]
    ),
}
CHANGES = {  # of a table: a cell, a row less, rows in another order
    "texts": lambda frame: frame.assign(text=frame["text"].where(frame.index != 3, "sun")),
    "series": lambda frame: frame.assign(load=frame["load"] + (frame.index == 700)),
    "table": lambda frame: frame.drop(index=5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_changes_with_the_data_and_not_with_the_place(kind, request, tmp_path):
    is_table = kind in CHANGES
    fixture = {"texts": "texts", "series": "series", "table": "series"}.get(kind, "images")
    source = request.getfixturevalue(fixture)
    here, there = tmp_path / "here" / "data.csv", tmp_path / "there" / "other.csv"
    for path in (here, there):
        path.parent.mkdir()
        shutil.copy(source, path) if is_table else shutil.copytree(
            source, path, copy_function=shutil.copyfile
        )
    first = read(kind, here)
    assert first
    assert read(kind, there) == first

    if is_table:
        CHANGES[kind](pd.read_csv(there)).to_csv(there, index=False)
    else:
        file = next(there.rglob("train/class_3/*.png"))
        Image.open(file).convert("L").convert("RGB").save(file)
    assert read(kind, there) != first


def read(kind: str, path: Path) -> str:
    data = KINDS[kind](path)
    data.open("fit") if kind == "table" else None
    return data.fingerprint
