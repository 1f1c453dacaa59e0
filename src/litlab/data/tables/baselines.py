"""What a network on a table has to beat, by scikit-learn with its own settings, from the same training rows."""

from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from litlab.data.scores import classification_scores, regression_scores

_MOST = 255  # categories that histogram gradient boosting takes
_ITERATIONS = 1000  # scikit-learn's 100 are too few for a logistic regression of many columns
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def score_baselines(train: Rows, test: Rows, target_names: list[str]) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    All of them learn from the training rows alone. The linear models get the columns as a network does, standardised,
    and the categories one-hot; boosting gets the numbers as they are, and the 255 most frequent categories of a column.

    Args:
        train: Numbers as they are, numbers as a network gets them, places of the categories, each (row, column); and
            classes, int64 of shape (row,), or targets, (row, target).
        test: Likewise.
        target_names: Names of the targets; none in classification.

    Returns:
        For the mean or most frequent class, the linear model and boosting their test metrics, as `scores` names them.
    """
    width, categories = train[0].shape[1], train[2].shape[1]
    boosting = {"categorical_features": [False] * width + [True] * categories, "random_state": 0}
    places = list(range(train[1].shape[1], train[1].shape[1] + categories))
    one_hot = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), places), remainder="passthrough")
    methods: dict[str, Any] = {
        "mean": DummyRegressor(),
        "ridge regression": make_pipeline(one_hot, Ridge()),
        "gradient boosting": MultiOutputRegressor(HistGradientBoostingRegressor(**boosting)),
    }
    if not target_names:
        methods = {
            "most frequent class": DummyClassifier(),
            "logistic regression": make_pipeline(one_hot, LogisticRegression(max_iter=_ITERATIONS)),
            "gradient boosting": HistGradientBoostingClassifier(**boosting),
        }

    scores = {}
    for name, method in methods.items():
        arrange = _arrange_for_trees if name == "gradient boosting" else _arrange_for_lines
        predicted = method.fit(arrange(train), train[3]).predict(arrange(test)).reshape(test[3].shape)
        if target_names:
            scores[name] = regression_scores(predicted, test[3], target_names)
        else:
            scores[name] = classification_scores(predicted, test[3])
    return scores


def _arrange_for_lines(rows: Rows) -> np.ndarray:
    return np.hstack([rows[1], rows[2]])


def _arrange_for_trees(rows: Rows) -> np.ndarray:
    return np.hstack([rows[0], np.where(rows[2] < _MOST, rows[2], 0)])
