"""What a checkpoint carries, and what is predicted from it alone; the baselines beside a test."""

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import TabularData
from tests.litlab.data.conftest import Recorder, prepared, refusal
from tests.litlab.data.tables.conftest import make_houses


class Predictor(Recorder):
    """What it predicts of a row is its first number, as one or two columns."""

    def predict_step(self, batch, index):
        self._keep("predict", batch)
        first = batch["numbers"][:, :1]
        return first if self.columns == 1 else torch.cat([first.sigmoid(), 1 - first.sigmoid()], dim=1)


@pytest.fixture
def predict(make, make_trainer, tmp_path):
    """Trains, then predicts a file from the checkpoint alone; returns metadata, inputs and what was written."""

    def predict_it(frame, suffix="csv", options={}, **settings):  # noqa: B006
        data, model = make(**options), Predictor()
        trainer = make_trainer()
        trainer.fit(model, data)
        trainer.save_checkpoint(tmp_path / "model.ckpt")
        other, source = (
            TabularData("csv", "gone.csv", target="gone", batch_size=3, **settings),
            tmp_path / f"new.{suffix}",
        )
        model.columns = 2 if data.class_names else 1
        (frame.to_parquet if suffix == "parquet" else frame.to_csv)(source, index=False)
        other.predict_input = str(source)
        outputs = make_trainer().predict(model, other, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
        other.write_predictions(outputs, str(tmp_path / "out.csv"))
        inputs = torch.cat(
            [batch["numbers"] for (stage, _), seen in model.seen.items() if stage == "predict" for batch in seen]
        )
        assert other.metadata == data.metadata
        assert other.target_names == ["price"] if not data.class_names else other.class_names == data.class_names
        return data.metadata, inputs, pd.read_csv(tmp_path / "out.csv")

    return predict_it


NEW = pd.DataFrame(
    {"note": ["x"] * 8, "kind": "flat", "city": ["Rom", "Oslo", *["Bonn"] * 6], "age": [None, *[3.0] * 7]}
)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predicting_from_the_checkpoint_alone(predict, suffix):
    """Other columns, another order, no target; a category that was never seen, numbers that are missing."""
    new = NEW.assign(size=[50, None, *range(100, 106)])
    metadata, inputs, written = predict(new, suffix)
    assert inputs[:, 2].tolist() == [1] + 7 * [0]
    assert inputs[0, 0] == pytest.approx((50 - metadata.mean[0]) / metadata.std[0])
    assert inputs[1, 0] == 0
    first = 2 if suffix == "csv" else 1
    assert written["row"].tolist() == [*range(first, first + 8)]
    np.testing.assert_allclose(written["predicted_price"], inputs[:, 0], rtol=1e-5)


def test_predicted_classes(predict):
    _, inputs, written = predict(make_houses(7, seed=1), options={"target": "kind"})
    assert list(written) == ["row", "prediction", "probability", "flat", "house"]
    np.testing.assert_allclose(written["flat"], inputs[:, 0].sigmoid(), rtol=1e-5)


def test_new_files_that_do_not_fit(predict):
    new = make_houses(8)
    assert "there is no column 'age', only 'size', 'Age', 'city', 'kind' " in refusal(
        predict, new.rename(columns={"age": "Age"})
    )
    assert "the model's output for 3 (4 in all) is NaN or infinite" in refusal(
        predict, new.assign(size=[1.0, 1e300] * 4)
    )
    wrong = new.assign(size=["big", *range(7)])
    assert "1 of 8 rows can't be used: row 2 ('size' is big, not a number); correct" in refusal(predict, wrong)
    assert "column 'size' has another decimal sign, as '1" in refusal(predict, new, decimal=",")
    assert predict(wrong, bad_rows="drop")[2]["row"].tolist() == [*range(3, 10)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "size"}, "trained with targets price, here it is size; "),
        ({"target": "kind"}, "trained with task regression, here it is classification; "),
        ({"ignore": ["age"]}, "trained with numbers size, age, here it is size; "),
        ({"ignore": ["city"]}, "trained with category_columns city, kind, here it is kind; "),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(make, options, message):
    state = prepared(make()).state_dict()
    assert message in refusal(prepared(make(**options)).load_state_dict, state)


def test_baselines_are_those_of_scikit_learn(make):
    """Called directly, on the rows as pandas has them."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    data = prepared(make(make_houses(300), ignore=["kind"]))
    train, test = data.table["train"], data.table["test"]
    mean, boosting = data.baselines().values()
    assert mean["test/mae"] == pytest.approx((test["price"] - train["price"].mean()).abs().mean())
    inputs = [rows[["size", "age"]].assign(city=rows["city"].astype("category")) for rows in (train, test)]
    method = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    predicted = method.fit(inputs[0], train["price"]).predict(inputs[1])
    assert boosting["test/mae"] == pytest.approx(abs(test["price"] - predicted).mean(), rel=1e-3)

    data = prepared(make(make_houses(300), target="kind"))
    frequent = data.baselines()["most frequent class"]
    expected = (data.table["test"]["kind"] == data.table["train"]["kind"].mode()[0]).mean()
    assert frequent["test/acc"] == expected


def test_baselines_of_several_targets_and_many_categories(make):
    """Boosting takes 255 categories at most: the rarest go together."""
    frame = make_houses(1500).assign(shop=[f"c{n % 300}" for n in range(1500)])
    data = prepared(make(frame, target=["price", "size"]))
    assert data.category_sizes[-1] > 256
    scores = data.baselines()["gradient boosting"]
    assert set(scores) == {f"test/{metric}_{name}" for metric in ("mse", "mae", "r2") for name in ("price", "size")}
