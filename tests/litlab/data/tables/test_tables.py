"""TabularData: what a network gets of a table, and what is said of it."""

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import TabularData
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.tables.conftest import make, make_houses


def test_inputs_are_measured_on_the_training_rows():
    frame = make_houses()
    frame.loc[[0, 1], "city"], frame.loc[2, "city"], frame.loc[4, "city"] = "Trier", None, "Worms"
    train = np.isin(frame.index, make(frame).table["train"].index - 2)
    frame.loc[~train, ["size", "price"]], frame.loc[~train, "city"] = 1e6, "Rom"
    data, raw = prepared(make(frame)), frame[train]

    inputs, target = data.samples("train")[torch.arange(70)]
    numbers = raw[["size", "age"]]
    scaled = (numbers - numbers.mean()) / numbers.std(ddof=0)
    expected = scaled.fillna(0).assign(lacks_age=raw["age"].isna().astype(float))
    np.testing.assert_allclose(inputs["numbers"], expected, atol=1e-6)
    assert inputs["numbers"].dtype == torch.float32
    np.testing.assert_allclose(target, raw[["price"]])  # in the units of the file
    edges = np.quantile(scaled["size"], np.linspace(0, 1, 33))
    np.testing.assert_allclose(data.bin_edges[0], edges, atol=1e-5)
    assert data.bin_edges[1][0] == pytest.approx(scaled["age"].min(), abs=1e-5)
    assert data.bin_edges[2] == [0, 1]  # whether there is an age

    counts = raw["city"].value_counts()
    often = counts.index[counts > 1].tolist()
    assert data.metadata.categories["city"] == often
    assert inputs["categories"][:, 0].tolist() == [
        often.index(city) + 1 if city in often else 0 for city in raw["city"]
    ]
    assert (data.samples("test").tensors[1][:, 0] == 0).all()  # never seen
    assert (data.num_numbers, data.category_sizes, data.num_outputs) == (3, [1 + len(often), 3], 1)

    # What the export computes is what was trained on.
    serving = data.serving()
    torch.testing.assert_close(serving.encode(*serving.raw((inputs, target))), inputs)


def test_types_of_columns():
    """Categories are the same texts in any file, with and without missing ones; times are not
    numbers. Groups are no input.
    """
    frame = make_houses().assign(zip=[50001, 50002, None, 50001] * 25, garden=[True, False] * 50)
    frame["level"] = pd.Categorical([0, 1] * 50)
    data = TabularData(path=frame, target="garden", categories=["zip"])
    assert "path" not in data.hparams  # a frame can't be in a checkpoint
    assert data.facts.numbers == ["size", "age", "price"]
    assert set(data.facts.categories["zip"]) == {"50001", "50002"}
    assert list(data.facts.categories) == ["city", "kind", "zip", "level"]
    assert data.class_names == ["False", "True"]
    # Nor are `2019_20`, which was read as 201920, and `<=3cm`, a broken number whose advice asked
    # for other columns.
    cells = {"season": ["2019_20", "1_1"] * 50, "width": ["<=3cm", ">3cm", "4", "4"] * 25}
    frame = make_houses().assign(**cells, floor=[5, None] * 50, owner=np.arange(100) // 2)
    facts = make(frame, categories=["age"], group_column="owner").facts
    assert list(facts.categories) == ["age", "city", "kind", "season", "width", "floor"]
    assert set(facts.categories["season"]) == {"2019_20", "1_1"}
    assert (facts.numbers, facts.categories["floor"]) == (["size"], ["5"])


@pytest.mark.parametrize(
    ("days", "parts"),
    [
        (pd.date_range("2024-12-01", periods=100), ["year", "month", "weekday", "days"]),
        (pd.date_range("2024-01-01", periods=100, freq="7D"), ["year", "month", "days"]),
    ],
)
def test_parts_of_a_date_that_are_constant_are_left_out(days, parts):
    """They tell nothing, and the others do: that is no reason to leave out the date."""
    frame = make_houses().assign(sold=days.strftime("%Y-%m-%d"))
    data = prepared(make(frame, dates=["sold"]))
    assert data.facts.numbers == ["size", "age", *(f"sold {part}" for part in parts)]
    numbers, _ = data.facts.arrange_inputs(data.read_input(frame.assign(sold="2025-01-02")))
    new = {"year": 2025, "month": 1, "weekday": 3, "days": 20_090}
    assert numbers[0, 2:].tolist() == [new[part] for part in parts]
    constant = make(frame.assign(sold="2024-05-01"), dates=["sold"])
    assert "sold is constant; add --data.ignore+ '[\"sold\"]'" in refusal(prepared, constant)
    same = make(frame.assign(**{"sold year": range(100)}), dates=["sold"])
    assert "'sold' would be called 'sold year', as a column of the table is" in refusal(
        prepared, same
    )


@pytest.mark.parametrize(
    ("count", "setting", "task"),
    [
        (20, None, "classification"),
        (21, None, "regression"),
        (21, "classification", "classification"),
        (2, "regression", "regression"),
    ],
)
def test_the_target_tells_the_task(count, setting, task):
    data = make(make_houses().assign(price=np.arange(100) % count), task=setting)
    assert data.description.endswith(f" of 2 numbers and 2 categories, {task} of price")
