"""What a network on a table has to beat, by scikit-learn with its own settings, from the same training rows."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor

from litlab.data.frames import Frame
from litlab.data.scores import classification_scores, regression_scores
from litlab.data.tables.serving import TabularMetadata

_MOST = 255  # categories that histogram gradient boosting takes


def score_baselines(train: Frame, test: Frame, known: TabularMetadata) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    They learn from the training rows alone. Boosting gets the numbers as they are, and of each column of categories the
    254 most frequent ones.

    Args:
        train: The training rows, as `TabularData` reads them.
        test: The test rows.
        known: Columns and classes.

    Returns:
        For the mean or most frequent class, and for boosting, their test metrics, as `scores` names them.
    """
    is_category = [False] * len(known.numbers) + [True] * len(known.categories)
    options: Any = {"categorical_features": is_category, "random_state": 0}
    if known.class_names:
        score: Any = classification_scores
        boosting = HistGradientBoostingClassifier(**options)
        methods = {"most frequent class": DummyClassifier(), "gradient boosting": boosting}
    else:
        score = partial(regression_scores, names=known.targets)
        boosting = MultiOutputRegressor(HistGradientBoostingRegressor(**options))
        methods = {"mean": DummyRegressor(), "gradient boosting": boosting}

    inputs, test_inputs = _lay_out(train, known), _lay_out(test, known)
    target, truth = known.lay_out_target(train), known.lay_out_target(test)
    scores = {}
    for name, method in methods.items():
        predicted = method.fit(inputs, target).predict(test_inputs)
        scores[name] = score(predicted.reshape(truth.shape), truth)
    return scores


def _lay_out(rows: Frame, known: TabularMetadata) -> np.ndarray:
    numbers, categories = known.lay_out(rows)
    return np.hstack([numbers, np.where(categories < _MOST, categories, 0)])
