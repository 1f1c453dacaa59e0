"""Settings and files with something wrong: the line that says so."""

import pytest

from litlab.data import TabularData
from tests.litlab.data.conftest import refusal
from tests.litlab.data.tables.conftest import HEADER, make_rows


def column(number: int, cells) -> list[list[str]]:
    """The usual rows with other cells in one column."""
    rows = make_rows(len(cells))
    for row, cell in zip(rows, cells, strict=True):
        row[number] = cell
    return [HEADER, *rows]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "data.dataset: null is not valid; set csv or generated"),
        ({"dataset": "csv"}, "data.path: null is not valid; dataset csv needs your file"),
        ({"dataset": "generated"}, "data.target: null is not valid; name the column to predict"),
        ({"target": []}, "data.target: [] is not valid; name the column to predict"),
        ({"target": ["a", "a"]}, "data.target: 'a' is in data.target already; delete one"),
        ({"target": "a", "ignore": ["a"]}, "data.ignore: 'a' is in data.target already; delete one"),
        ({"target": "a", "time_column": "a"}, "data.time_column: 'a' is in data.target already; delete one"),
        (
            {"target": "a", "group_column": "b", "time_column": "c"},
            "data.time_column: there is data.group_column already; set one of them",
        ),
        (
            {"target": "a", "val_fraction": 0.5, "test_fraction": 0.5},
            "data.val_fraction: 0.5 is not valid; with data.test_fraction it must be below 1",
        ),
    ],
)
def test_settings(options, message):
    given = {"dataset": "generated"} if options.keys() - {"dataset"} else {}
    assert refusal(TabularData, **given | options) == message


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "PATH: the file is empty; give a header and one row per sample"),
        ([HEADER], {}, "PATH: no rows below a header; give one row per sample"),
        (
            [HEADER, *make_rows()],
            {"target": "prize"},
            "PATH: there is no column 'prize', only 'size', 'age', 'city', 'kind', 'price'; set --data.target price",
        ),
        (
            [HEADER, *make_rows()],
            {"ignore": ["sise"]},
            "PATH: there is no column 'sise', only 'size', 'age', 'city', 'kind', 'price'; write size in data.ignore",
        ),
        (
            [HEADER, *make_rows()],
            {"group_column": "town"},
            "PATH: there is no column 'town', only 'size', 'age', 'city', 'kind', 'price'; set --data.group_column "
            "NAME",
        ),
        (
            [["size;age;price"], *([";".join(row)] for row in make_rows())],
            {},
            "PATH: there is no column 'price', only 'size;age;price'; separate the values by commas, and decimals by "
            "points",
        ),
        (
            [["size", "age", "city", "size", "price"], *make_rows()],
            {},
            "PATH: there are 2 columns 'size'; rename all but one",
        ),
        (
            [HEADER, *make_rows()],
            {"ignore": HEADER[:4]},
            "PATH: no column is left to predict price from; add one",
        ),
        (
            [HEADER, *make_rows(5), ["1", "2", "a"], *make_rows(5)],
            {},
            "PATH, line 7: 3 fields instead of 5: put texts with line breaks into double quotes; correct or delete the "
            "row, or use --data.bad_rows drop",
        ),
        (
            column(0, ["5"] * 50),
            {"ignore": ["age"]},
            "csv PATH: column 'size' is 5 in all training rows; leave out what tells nothing: --data.ignore '[age, "
            "size]'",
        ),
        (
            column(2, ["Bonn"] * 50),
            {},
            "csv PATH: column 'city' is 'Bonn' in all training rows; leave out what tells nothing: --data.ignore "
            "'[city]'",
        ),
        (
            column(1, [""] * 50),
            {},
            "csv PATH: column 'age' has no value in any training row; leave out what tells nothing: --data.ignore "
            "'[age]'",
        ),
        (
            column(2, [f"house {number}" for number in range(50)]),
            {},
            "csv PATH: column 'city' has another text in each training row; leave out what tells nothing: "
            "--data.ignore "
            "'[city]'",
        ),
        (
            column(0, [str(number) for number in range(1, 51)]),
            {},
            "csv PATH: column 'size' counts the rows; leave out what tells nothing: --data.ignore '[size]'",
        ),
        (
            column(0, [f"{number} m" for number in range(50)]),
            {},
            "PATH, line 2 (and 49 more): column 'size' is '0 m', not a plain number: write 0; correct the "
            "column, or add 'size' to data.categories or data.ignore",
        ),
        (
            [HEADER, *make_rows()],
            {"categories": ["kind"]},
            "PATH, line 2 (and 99 more): column 'city' is 'Bonn', not a number; correct the column, or add "
            "'city' to data.categories or data.ignore",
        ),
        (
            column(0, ["1e308", "-1e308"] * 25),
            {},
            "csv PATH: column 'size' runs from -1e+308 to 1e+308 in the training rows, which can't be scaled; "
            "correct it, "
            "or add it to data.ignore",
        ),
        (
            column(4, ["nan", *("1.5" for _ in range(49))]),
            {},
            "PATH, line 2: column 'price' is 'nan', not a number; correct or delete the row, or use "
            "--data.bad_rows drop",
        ),
        (
            column(4, ["inf", *("1.5" for _ in range(49))]),
            {},
            "PATH, line 2: column 'price' is 'inf', not a finite number; correct or delete the row, or use "
            "--data.bad_rows drop",
        ),
        (
            column(4, ["", *("1.5" for _ in range(49))]),
            {},
            "PATH, line 2: column 'price' is empty; correct or delete the row, or use --data.bad_rows drop",
        ),
        (
            column(4, [""] * 50),
            {"bad_rows": "drop"},
            "PATH: 50 of 50 rows can't be used: line 2 (column 'price' is empty), line 3 (column 'price' is empty), "
            "line 4 "
            "(column 'price' is empty), and 47 more; correct or delete them",
        ),
        (
            column(4, ["7.5"] * 50),
            {},
            "csv PATH: target 'price' is 7.5 in all training rows; there is nothing to learn",
        ),
        (
            column(4, ["yes"] * 50),
            {},
            "csv PATH: target 'price' is 'yes' in all training rows; 2 classes are needed",
        ),
        (
            column(4, [f"name {number}" for number in range(50)]),
            {},
            "PATH: column 'price' has another value in each of 50 rows, so it can't be the class; name the right one "
            "with "
            "--data.target, or set data.task regression",
        ),
        (
            [HEADER, *make_rows()],
            {"target": "kind", "task": "regression"},
            "PATH, line 2 (and 99 more): column 'kind' is 'house', not a number; correct the column, name "
            "another, or set data.task classification",
        ),
        (
            [HEADER, *make_rows()],
            {"target": ["kind", "city"], "task": "classification"},
            "data.target: 2 columns can't be classified; name one, or set data.task regression",
        ),
        (
            [HEADER, *make_rows()],
            {"group_column": "kind"},
            "data.group_column: 'kind' has 2 different values, too few for train and test and val; give more, or set "
            "data.val_fraction 0",
        ),
        (
            column(2, ["2024-01-01"] * 40 + ["2024-02-01"] * 8 + ["soon", "2024-03-01"]),
            {"time_column": "city"},
            "PATH, line 50: column 'city' is 'soon', not a time: write it like 2024-01-31 13:00:00; correct or delete "
            "the "
            "row, or use --data.bad_rows drop",
        ),
        (
            column(2, ["train"] * 49 + ["Test"]),
            {"split_column": "city"},
            "PATH, line 51: city is 'Test', not train, val or test; correct or delete the row, or use "
            "--data.bad_rows drop",
        ),
        (
            column(2, ["test"] * 50),
            {"split_column": "city"},
            "PATH: no row has city train; mark the training rows",
        ),
        (
            column(2, ["", *("abc"[number % 3] for number in range(49))]),
            {"group_column": "city"},
            "PATH, line 2: column 'city' is empty; correct or delete the row, or use --data.bad_rows drop",
        ),
    ],
)  # fmt: skip
def test_files(make, houses, rows, options, message):
    assert refusal(make(rows, **options).setup).replace(str(houses), "PATH") == message


def test_several_columns_that_tell_nothing_are_told_at_once(make, houses):
    rows = [["5", "", "Bonn", *row[3:], "x"] for row in make_rows()]
    assert refusal(make([[*HEADER, "more"], *rows]).setup).replace(str(houses), "PATH") == (
        "csv PATH: column 'size' is 5 in all training rows, 'age' has no value in any training row, 'city' is 'Bonn' "
        "in "
        "all training rows, and 1 more like them; leave out what tells nothing: --data.ignore '[size, age, city, more]'"
    )


def test_a_number_that_is_sometimes_missing_is_not_constant(make):
    """Whether it is there may tell something."""
    data = make(column(1, ["5", ""] * 25))
    data.setup()
    samples = data.samples("train")
    assert set(samples.numbers[:, 1].tolist()) == {0.0}
    assert set(samples.numbers[:, 2].tolist()) == {0.0, 1.0}
