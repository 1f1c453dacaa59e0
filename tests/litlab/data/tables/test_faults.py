"""What is wrong with a table: the line that says so."""

import numpy as np
import pandas as pd
import pytest

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.tables.conftest import make, make_houses

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ({}, {"group_column": "city", "time_column": "age"}, "data.group_column, data.time_column: "
                                                             "each of them split"),
        ({"at": [f"{n % 24}:{n // 2:02}" for n in range(100)]}, {}, "at has another text in (near"),
        ({"city": ["2024-01-01", "soon"] * 50}, {"time_column": "city"}, "row 3 ('city' is soon), "
                                                                         "row 5"),
        ({"city": ["train", "Text"] * 50}, {"split_column": "city"}, "row 3 says 'Text'; write tr"),
        ({"city": "test"}, {"split_column": "city"}, "data.split_column: no row is for train"),
        ({"city": ["a", None] * 50}, {"group_column": "city"}, "50 of 100 rows can't be used: row "
                                                               "3 ('city' is missin"),
        # Among numbers NA is no class
        ({"kind": ["1", "NA", "2", "1"] * 25}, {"target": "kind"}, "25 of 100 rows can't be used: "
                                                                   "row 3 ('kind' is missing),"),
    ],
)  # fmt: skip
def test_files(cells, options, message):
    assert message in refusal(lambda: prepared(make(make_houses().assign(**cells), **options)))


def test_bad_rows_are_named_or_left_out(said):
    frame = make_houses().astype({"size": object})
    frame.loc[[0, 1, 4], "size"] = ["2019_20", "<=3cm", "<=3cm"]
    frame.loc[6, "price"] = None
    summary = "4 of 100 rows can't be used: row 2 ('size' is 2019_20, not a number), row 3 ("
    assert summary in refusal(prepared, make(frame))
    for missing, kept in (([], 96), (["<=3cm"], 98)):
        assert sum(map(len, make(frame, bad_rows="drop", missing=missing).table.values())) == kept
    assert summary in said[0]
    kinds = frame.assign(kind=["flat", "house", "NA", "house"] * 25)
    assert make(kinds, target="kind", bad_rows="drop").class_names == ["NA", "flat", "house"]


def test_copies_of_training_rows_in_the_test_are_told(said):
    copies = pd.concat([make_houses(), make_houses()])
    prepared(make(copies), "fit")
    assert any("of 40 test rows, too, so the test tells less" in line for line in said)
    said.clear()
    prepared(make(copies.assign(house=[*range(100)] * 2), group_column="house"), "fit")
    # The same city comes by chance
    prepared(make(target="kind", ignore=["size", "age", "price"]), "fit")
    assert not any("warning" in line for line in said)


@pytest.mark.parametrize(
    ("column", "is_leak"),
    [
        (np.arange(0, 200, 2), True),  # numbers of rows that are sorted by class
        ([f"key {n // 10}" for n in range(100)], True),
        ([f"key {n // 3}" for n in RNG.permutation(100)], False),
        (np.arange(100) + RNG.normal(0, 20, 100), False),
    ],
)
def test_a_column_that_gives_the_class_away_is_told(said, column, is_leak):
    frame = make_houses().assign(kind=np.repeat(["flat", "house"], 50), id=column)
    data = prepared(make(frame, target="kind", ignore=["size", "price"]), "fit")
    data.setup("fit")  # it is said once
    assert ["column id alone tells the target" in line for line in said].count(True) == is_leak
