"""Splits by row, by a column of the file, by group and by time."""

import numpy as np
import pytest

from litlab.data.tables.split import by_unit
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.tables.conftest import HEADER, make_rows


def with_column(name: str, cells) -> list[list[str]]:
    return [[*HEADER, name], *([*row, str(cell)] for row, cell in zip(make_rows(len(cells)), cells, strict=True))]


def parts_of(data, cells) -> dict[str, set]:
    """The values of a column in each split."""
    return {split: {cells[place] for place in data.table.places(split)} for split in ("train", "val", "test")}


def test_no_group_is_in_two_splits(make):
    groups = [f"p{n * n % 23}" for n in range(200)]
    data = prepared(make(with_column("patient", groups), group_column="patient"))
    parts = parts_of(data, groups)
    assert not parts["train"] & parts["val"]
    assert not parts["train"] & parts["test"]
    assert not parts["val"] & parts["test"]
    assert "patient" not in data.known_metadata.categories
    assert abs(data.sizes["test"] - 40) < 20
    assert abs(data.sizes["val"] - 20) < 20


def test_the_groups_of_each_split_are_nearest_to_its_share():
    units = np.repeat([f"{n:03}" for n in range(100)], 3)
    parts = by_unit(units, "group_column", "g", 0.1, 0.25)
    assert {split: int((parts == split).sum()) for split in ("train", "val", "test")} == {
        "train": 195,
        "val": 30,
        "test": 75,
    }
    assert len({*np.flatnonzero(parts == "test")} & {*range(225, 300)}) < 60  # drawn at random


@pytest.mark.parametrize("count", [3, 4])
def test_every_split_gets_a_group_however_large(count):
    parts = by_unit(np.repeat([*"abcd"[:count]], [100, 1, 1, 1][:count]), "group_column", "g", 0.4, 0.4)
    assert set(parts) == {"train", "val", "test"}


@pytest.mark.parametrize(
    "times",
    [
        [f"2024-{1 + n % 12:02}-{1 + n % 28:02}" for n in range(200)],
        [f"2024-01-{1 + n % 20:02}T12:00:00+02:00" for n in range(200)],
        [(n * 37) % 50 - 20.5 for n in range(200)],
    ],
)
def test_the_test_is_after_validation_which_is_after_training(make, times):
    data = prepared(make(with_column("when", times), time_column="when"))
    parts = parts_of(data, times)
    assert max(parts["train"]) < min(parts["val"])
    assert max(parts["val"]) < min(parts["test"])
    assert abs(data.sizes["test"] - 40) <= 12
    assert abs(data.sizes["val"] - 20) <= 12
    assert {"when"}.isdisjoint([*data.known_metadata.numbers, *data.known_metadata.categories])


def test_the_file_says_which_rows_are_for_what(make):
    marks = ["train"] * 60 + ["val"] * 15 + ["test"] * 25
    data = prepared(make(with_column("part", marks), split_column="part", test_fraction=0.5, val_fraction=0.4))
    assert data.table.part.tolist() == marks
    marks = ["train"] * 70 + ["test"] * 30
    data = prepared(make(with_column("part", marks), split_column="part"))
    assert data.sizes == {"train": 63, "val": 7, "test": 30}
    assert data.table.part.tolist()[70:] == marks[70:]
    data = prepared(make(with_column("part", ["train"] * 50), split_column="part"))
    assert not data.has_test
    assert "data.split_column: no row of" in refusal(data.setup, "test")


def test_rows_of_classes_that_training_does_not_know_are_bad(make):
    marks = ["train"] * 60 + ["test"] * 40
    rows = with_column("part", marks)
    rows[80][3] = rows[90][3] = "barn"
    message = refusal(make(rows, split_column="part", target="kind").setup)
    assert ": 2 of 100 rows can't be used: line 81 (class 'barn' is in test, but not in train), line 91 (" in message
    data = prepared(make(rows, split_column="part", target="kind", bad_rows="drop"))
    assert data.class_names == ["flat", "house"]
    assert data.sizes["test"] == 38


def test_a_class_of_one_row_stays_in_training(make):
    rows = make_rows()
    for place in range(4):
        rows[place][3] = f"only{place}"
    data = prepared(make([HEADER, *rows], target="kind"))
    assert set(data.table.target[data.table.places("train")]) == {"flat", "house", *(f"only{n}" for n in range(4))}
