"""What a checkpoint carries, and what is predicted from it alone; the baselines beside a test."""

import numpy as np
import pandas as pd
import pytest

from tests.litlab.data.conftest import refusal, restore, write_and_read
from tests.litlab.data.tables.conftest import make, make_houses


def predict(frame, **settings):
    """Predict rows from the metadata alone, as their first number; return that, the inputs and
    what was written.
    """
    data = restore(make(), target="gone", batch_size=3, **settings)
    data.predict_input = frame
    inputs = [batch["numbers"] for batch in data.predict_dataloader()]
    written = write_and_read(data, *(batch[:, :1] for batch in inputs))
    return data.metadata, np.concatenate(inputs), written


def test_predicting_from_the_checkpoint_alone():
    """Other columns, another order, no target; a category that was never seen, numbers that are
    missing.
    """
    cells = {"note": "x", "kind": "flat", "city": ["Rom", *["Bonn"] * 7], "age": [None, *[3.0] * 7]}
    metadata, inputs, written = predict(
        pd.DataFrame({**cells, "size": [50, None, *range(100, 106)]})
    )
    assert inputs[:, 2].tolist() == [1] + 7 * [0]
    assert inputs[:2, 0].tolist() == [pytest.approx((50 - metadata.mean[0]) / metadata.std[0]), 0]
    assert written["row"].tolist() == [*"12345678"]
    np.testing.assert_allclose(written["predicted_price"].astype(float), inputs[:, 0], rtol=1e-5)


def test_numbers_far_from_the_training_are_counted(said):
    houses = make_houses(8)
    predict(houses)
    assert not said
    predict(houses.assign(size=[*houses["size"][:-1], 1e6]))
    assert said[-1].startswith("warning: --input: in 1 of 8 rows column 'size' is far from all")


def test_a_checkpoint_of_other_data_is_refused():
    for options, facts in (
        ({"target": "kind"}, "task"),
        ({"ignore": ["age"]}, "numbers"),
        ({"ignore": ["city"]}, "category"),
    ):
        assert f"trained with {facts}" in refusal(make().facts.check_same, make(**options).facts)


def test_baselines_of_numbers_and_many_categories():
    """Boosting takes 255 categories at most: the rarest go together."""
    frame = make_houses(600).assign(shop=[f"c{n % 280}" for n in range(600)])
    data = make(frame, target=["price", "size"], test_fraction=0.05, val_fraction=0.0)
    assert data.category_sizes[-1] > 256
    mean, boosting = data.baselines().values()
    train, test = data.table["train"]["price"], data.table["test"]["price"]
    assert mean["test/mae_price"] == pytest.approx((test - train.mean()).abs().mean())
    assert boosting["test/mae_price"] < 0.8 * mean["test/mae_price"]
    assert "test/r2_size" in boosting
