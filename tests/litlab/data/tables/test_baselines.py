"""Baselines of a table, beside scikit-learn called directly."""

import numpy as np
import pytest

from tests.litlab.data.conftest import prepared
from tests.litlab.data.tables.conftest import HEADER, make_rows


def test_baselines_are_those_of_scikit_learn(make):
    """Called directly, on the rows as pandas would give them."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, mean_squared_error, r2_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    def cells(data, split):
        table = data.table.take(data.table.places(split))
        columns = [*table.numbers.values(), *table.categories.values()]
        return np.stack([column.astype(object) for column in columns], axis=1), table.target

    data = prepared(make([HEADER, *make_rows(300)]))
    (x, y), (test_x, test_y) = cells(data, "train"), cells(data, "test")
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    # The indicator is not standardised here, which changes what ridge makes of it a little.
    inputs = ColumnTransformer([("n", numbers, [0, 1]), ("c", OneHotEncoder(), [2, 3])])
    scores = data.baselines()
    assert list(scores) == ["mean", "ridge regression", "gradient boosting"]
    ridge = make_pipeline(inputs, Ridge()).fit(x, y).predict(test_x)
    assert scores["ridge regression"]["test/mse"] == pytest.approx(mean_squared_error(test_y, ridge), rel=0.02)
    trees = ColumnTransformer([("n", "passthrough", [0, 1]), ("c", OrdinalEncoder(), [2, 3])])
    boosting = HistGradientBoostingRegressor(categorical_features=[2, 3], random_state=0)
    boosted = make_pipeline(trees, boosting).fit(x, y.ravel()).predict(test_x)
    for name, score in (("mse", mean_squared_error), ("mae", mean_absolute_error), ("r2", r2_score)):
        assert scores["gradient boosting"][f"test/{name}"] == pytest.approx(score(test_y, boosted), rel=1e-6)
        mean = np.full_like(test_y, y.mean())
        assert scores["mean"][f"test/{name}"] == pytest.approx(score(test_y, mean), rel=1e-6, abs=1e-9)

    data = prepared(make(target="kind", ignore=["size"]))
    (x, y), (test_x, test_y) = cells(data, "train"), cells(data, "test")
    scores = data.baselines()
    assert list(scores) == ["most frequent class", "logistic regression", "gradient boosting"]
    trees = ColumnTransformer([("n", "passthrough", [0, 1]), ("c", OrdinalEncoder(), [2])])
    boosting = HistGradientBoostingClassifier(categorical_features=[2], random_state=0)
    boosted = make_pipeline(trees, boosting).fit(x, y).predict(test_x)
    inputs = ColumnTransformer([("n", numbers, [0, 1]), ("c", OneHotEncoder(), [2])])
    logistic = make_pipeline(inputs, LogisticRegression()).fit(x, y).predict(test_x)
    frequent = np.full(len(test_y), max(set(y), key=y.tolist().count))
    for name, predicted in zip(scores, (frequent, logistic, boosted), strict=True):
        expected = {
            "test/acc": accuracy_score(test_y, predicted),
            "test/f1": f1_score(test_y, predicted, average="macro"),
        }
        assert scores[name] == pytest.approx(expected)


def test_baselines_of_several_targets_and_many_categories(make):
    """Boosting takes 255 categories at most: the rarest go together."""
    rows = [[*row, f"c{n % 300}"] for n, row in enumerate(make_rows(1500))]
    data = prepared(make([[*HEADER, "shop"], *rows], target=["price", "size"]))
    assert data.category_sizes[-1] > 256
    scores = data.baselines()["gradient boosting"]
    assert set(scores) == {f"test/{metric}_{name}" for metric in ("mse", "mae", "r2") for name in ("price", "size")}
    assert scores["test/r2_price"] > 0.5
