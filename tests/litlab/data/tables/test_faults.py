"""What is wrong with a table: the line that says so."""

import numpy as np
import pandas as pd
import pytest

from litlab.data import TabularData
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.tables.conftest import make_houses

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "data.dataset: it is not set; "),
        ({"dataset": "csv"}, "data.path: it is not set; "),
        ({"dataset": "generated"}, "data.target: it is not set; name the column to predict"),
        ({"target": "a", "group_column": "b", "time_column": "c"}, "data.group_column and data.time_column: each of"),
        (
            {"target": "a", "val_fraction": 0.5, "test_fraction": 0.5},
            "data.val_fraction: with data.test_fraction it must",
        ),
    ],
)
def test_settings(options, message):
    given = {"dataset": "generated"} if "target" in options else {}
    assert refusal(TabularData, **given | options).startswith(message)


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ({}, {"target": "prize"}, "there is no column 'prize', only 'size', 'age', 'city', 'kind', 'price'; did you m"),
        ({}, {"ignore": ["a"]}, "there is no column 'a', only 'size', 'age', 'city', 'kind', 'price'; correct the set"),
        ({}, {"ignore": ["size", "age", "city", "kind"]}, "no column is left to predict price from; add one"),
        ({}, {"target": ["kind", "city"], "task": "classification"}, "several columns can't be classified; name one"),
        ({"size": 5, "city": "Bonn", "age": None}, {"ignore": ["kind"]}, "column 'size' is 5.0 in all training rows,"),
        ({"size": 5}, {"ignore": ["age"]}, "leave out what tells nothing: --data.ignore '[age, size]'"),
        ({"city": [f"house {n}" for n in range(100)]}, {}, "column 'city' has another text in each training row; leav"),
        ({"size": range(1, 101)}, {}, "column 'size' counts the rows; leave out what tells nothing: --data.ignore '[s"),
        ({"size": [1e308, -1e308] * 50}, {}, "column 'size' runs from -1e+308 to 1e+308 in the training rows, which c"),
        ({"price": 7.5}, {}, "target 'price' has 1 different values in 70 training rows, so there is nothing to learn"),
        ({"price": [f"n{n}" for n in range(100)]}, {}, "target 'price' has 100 different values in 100 training rows,"),
        ({}, {"group_column": "kind"}, "data.group_column, data.time_column: too few different values for all splits;"),
        ({"city": ["2024-01-01", "soon"] * 50}, {"time_column": "city"}, "row 3 ('city' is soon, which data.time_colu"),
        ({"city": ["train", "Test"] * 50}, {"split_column": "city"}, "row 3 ('city' is Test, which data.split_column"),
        ({"city": "test"}, {"split_column": "city"}, "houses.csv is for train; mark the training rows"),
        ({"city": ["a", None] * 50}, {"group_column": "city"}, "50 of 100 rows can't be used: row 3 ('city' is missin"),
        (
            {"city": ["train"] * 60 + ["test"] * 40, "kind": ["flat", "house"] * 49 + ["barn"] * 2},
            {"split_column": "city", "target": "kind"},
            "2 of 100 rows can't be used: row 100 (class 'barn' is in test, not in train), row 101 (class",
        ),
    ],
)  # fmt: skip
def test_files(make, cells, options, message):
    assert message in refusal(prepared, make(make_houses().assign(**cells), **options))


def test_a_number_that_is_sometimes_missing_is_not_constant(make):
    data = prepared(make(make_houses().assign(age=[5, None] * 50)))
    rows = data.samples("train")
    assert set(rows.numbers[:, 1].tolist()) == {0.0}
    assert set(rows.numbers[:, 2].tolist()) == {0.0, 1.0}


def test_columns_of_words_are_categories_and_a_few_wrong_cells_are_bad_rows(make, said):
    """`2019_20` was read as 201920; `1st` and `<=3cm` were broken numbers, whose advice asked for all other columns."""
    words = {"season": ["2019_20", "1_1"], "rank": ["1st", "2nd"], "width": ["<=3cm", "4"]}
    frame = make_houses().assign(**{name: RNG.choice(cells, 100) for name, cells in words.items()})
    data = prepared(make(frame.assign(width=RNG.choice(["<=3cm", ">3cm", "4"], 100)), categories=["age"]))
    assert list(data.metadata.categories) == ["age", "city", "kind", "season", "rank", "width"]
    assert set(data.metadata.categories["season"]) == {"2019_20", "1_1"}
    assert data.metadata.numbers == ["size"]

    frame = make_houses().astype({"size": object})
    frame.loc[0, "size"], frame.loc[[1, 4], "size"], frame.loc[6, "price"] = "2019_20", "<=3cm", None
    hint = "not a number (see data.missing, data.categories)"
    assert refusal(prepared, make(frame)).endswith(
        f"4 of 100 rows can't be used: row 2 ('size' is 2019_20, {hint}), row 3 ('size' is <=3cm, {hint}), row 6 "
        f"('size' is <=3cm, {hint}) and 1 more; correct or delete them, or use --data.bad_rows drop"
    )
    assert sum(prepared(make(frame, bad_rows="drop")).sizes.values()) == 96
    assert any(line.endswith("and 1 more; they are left out (data.bad_rows)") for line in said)
    assert sum(prepared(make(frame, bad_rows="drop", missing=["<=3cm"])).sizes.values()) == 98


def test_a_missing_target_is_no_class(make):
    """`NA` trained as a class."""
    frame = make_houses().assign(kind=["flat", "house", "NA", "house"] * 25)
    message = "25 of 100 rows can't be used: row 4 ('kind' is missing), row 8 ('kind' is missing), row 12"
    assert message in refusal(prepared, make(frame, target="kind"))
    data = prepared(make(frame, target="kind", bad_rows="drop"))
    assert (data.class_names, sum(data.sizes.values())) == (["flat", "house"], 75)


def test_targets_whose_squares_float32_cannot_hold_are_refused(make):
    """Their metrics were NaN."""
    frame = make_houses()
    frame["price"] *= 1e28
    assert "('price' is " in (message := refusal(prepared, make(frame)))
    assert "e+32, too large for float32: use a larger unit) and 97 more; correct or delete them" in message
    frame["price"] *= 1e-60
    assert "in the training rows, which can't be scaled; correct it, or leave it out" in refusal(prepared, make(frame))


def test_copies_of_training_rows_in_the_test_are_told(make, said):
    copies = pd.concat([make_houses(), make_houses()])
    prepared(make(copies))
    (line,) = [line for line in said if "warning" in line]
    assert "of 40 test rows are copies of training rows, so the test tells less; delete copies, or name" in line
    said.clear()
    prepared(make(copies.assign(house=[*range(100)] * 2), group_column="house"))
    prepared(make(target="kind", ignore=["size", "age", "price"]))  # the same city comes by chance
    assert not any("warning" in line for line in said)


@pytest.mark.parametrize(
    ("column", "is_leak"),
    [
        (np.arange(1000, 1100), True),  # numbers of rows that are sorted by class
        ([f"key {n // 10}" for n in range(100)], True),
        (RNG.normal(size=100), False),
        ([f"key {n // 3}" for n in RNG.permutation(100)], False),
        (np.arange(100) + RNG.normal(0, 20, 100), False),
    ],
)
def test_a_column_that_gives_the_class_away_is_told(make, said, column, is_leak):
    frame = make_houses().assign(kind=np.repeat(["flat", "house"], 50), id=column)
    prepared(make(frame, target="kind", ignore=["size", "price"]))
    told = [line for line in said if "column 'id' alone tells the target (nearly) without error; leave out" in line]
    assert bool(told) == is_leak
    assert len([line for line in said if "warning" in line]) == is_leak


def test_a_number_that_is_the_target_in_another_unit_is_told(make, said):
    frame = make_houses(1000)
    prepared(make(frame.assign(cents=100 * frame["price"] + 3)))
    assert any("column 'cents' alone tells the target" in line for line in said)
