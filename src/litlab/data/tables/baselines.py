"""What a network on a table has to beat, by scikit-learn with its own settings, from the same training rows."""

from collections.abc import Sequence
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


def score_baselines(
    train: Sequence[np.ndarray], test: Sequence[np.ndarray], target_names: list[str]
) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    All of them learn from the training rows alone, from what the network gets. The linear models get the categories
    one-hot, boosting the 255 most frequent of a column.

    Args:
        train: Numbers and categories as the network gets them, (row, column); and classes, int64 of shape (row,), or
            targets, (row, target).
        test: Likewise.
        target_names: Names of the targets; none in classification.

    Returns:
        For the mean or most frequent class, the linear model and boosting their test metrics, as `scores` names them.
    """
    is_category = np.repeat([False, True], [part.shape[1] for part in train[:2]])
    one_hot = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), is_category), remainder="passthrough")
    boosting: dict[str, Any] = {"categorical_features": is_category, "random_state": 0}
    methods: dict[str, Any] = {
        "most frequent class": DummyClassifier(),
        "logistic regression": make_pipeline(one_hot, LogisticRegression(max_iter=_ITERATIONS)),
        "gradient boosting": HistGradientBoostingClassifier(**boosting),
    }
    if target_names:
        methods = {
            "mean": DummyRegressor(),
            "ridge regression": make_pipeline(one_hot, Ridge()),
            "gradient boosting": MultiOutputRegressor(HistGradientBoostingRegressor(**boosting)),
        }
    inputs, new = (np.hstack([rows[0], np.where(rows[1] < _MOST, rows[1], 0)]) for rows in (train, test))
    scores = {}
    for name, method in methods.items():
        predicted = method.fit(inputs, train[2]).predict(new).reshape(test[2].shape)
        if target_names:
            scores[name] = regression_scores(predicted, test[2], target_names)
        else:
            scores[name] = classification_scores(predicted, test[2])
    return scores
