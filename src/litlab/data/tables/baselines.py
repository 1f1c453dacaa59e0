"""What a network on a table has to beat, by scikit-learn with its own settings, from the same training rows."""

from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from litlab.data.scores import classification_scores, regression_scores

_MOST = 255  # categories that histogram gradient boosting takes
_ITERATIONS = 1000  # scikit-learn's 100 are too few for a logistic regression of many columns
Rows = tuple[np.ndarray, np.ndarray]


def score_baselines(train: Rows, test: Rows, numbers: int, target_names: list[str]) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    All of them learn from the training rows alone. The linear models get the numbers standardised and the categories
    one-hot; boosting gets the numbers as they are, and the 255 most frequent categories of a column.

    Args:
        train: Numbers, then places of the categories, as of `lay_out`, float64 of shape (row, column); and classes,
            int64 of shape (row,), or targets, (row, target).
        test: Likewise.
        numbers: How many columns are numbers.
        target_names: Names of the targets; none in classification.

    Returns:
        For the mean or most frequent class, the linear model and boosting their test metrics, as `scores` names them.
    """
    is_category = np.arange(train[0].shape[1]) >= numbers
    scale = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
    lines = make_column_transformer((scale, ~is_category), (OneHotEncoder(handle_unknown="ignore"), is_category))
    cap = FunctionTransformer(lambda inputs: np.where(is_category & (inputs >= _MOST), 0, inputs))
    boosting: dict[str, Any] = {"categorical_features": is_category, "random_state": 0}
    methods: dict[str, Any] = {
        "mean": DummyRegressor(),
        "ridge regression": make_pipeline(lines, Ridge()),
        "gradient boosting": make_pipeline(cap, MultiOutputRegressor(HistGradientBoostingRegressor(**boosting))),
    }
    if not target_names:
        methods = {
            "most frequent class": DummyClassifier(),
            "logistic regression": make_pipeline(lines, LogisticRegression(max_iter=_ITERATIONS)),
            "gradient boosting": make_pipeline(cap, HistGradientBoostingClassifier(**boosting)),
        }
    scores = {}
    for name, method in methods.items():
        predicted = method.fit(*train).predict(test[0]).reshape(test[1].shape)
        if target_names:
            scores[name] = regression_scores(predicted, test[1], target_names)
        else:
            scores[name] = classification_scores(predicted, test[1])
    return scores
