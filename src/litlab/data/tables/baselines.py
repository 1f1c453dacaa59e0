"""What a network on a table has to beat, by scikit-learn with its own settings, from the same training rows."""

from functools import partial
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from litlab.data.frames import Frame
from litlab.data.scores import classification_scores, regression_scores
from litlab.data.tables.serving import TabularMetadata

_MOST = 255  # categories that histogram gradient boosting takes
_ITERATIONS = 1000  # scikit-learn's 100 are too few for a logistic regression of many columns


def score_baselines(train: Frame, test: Frame, known: TabularMetadata) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    All of them learn from the training rows alone, of each column of categories from the 254 most frequent ones. The
    linear models get the numbers standardised and the categories one-hot; boosting gets the numbers as they are.

    Args:
        train: The training rows, as `TabularData` reads them.
        test: The test rows.
        known: Columns and classes.

    Returns:
        For the mean or most frequent class, the linear model and boosting their test metrics, as `scores` names them.
    """
    numbers = list(range(len(known.numbers)))
    categories = [len(numbers) + place for place in range(len(known.categories))]
    scale = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
    lines = make_column_transformer((scale, numbers), (OneHotEncoder(handle_unknown="ignore"), categories))
    boosting: dict[str, Any] = {"categorical_features": categories, "random_state": 0}
    if known.class_names:
        score: Any = classification_scores
        methods = {
            "most frequent class": DummyClassifier(),
            "logistic regression": make_pipeline(lines, LogisticRegression(max_iter=_ITERATIONS)),
            "gradient boosting": HistGradientBoostingClassifier(**boosting),
        }
    else:
        score = partial(regression_scores, names=known.targets)
        methods = {
            "mean": DummyRegressor(),
            "ridge regression": make_pipeline(lines, Ridge()),
            "gradient boosting": MultiOutputRegressor(HistGradientBoostingRegressor(**boosting)),
        }

    scores = {}
    truth = known.lay_out_target(test)
    for name, method in methods.items():
        method.fit(_lay_out(train, known), known.lay_out_target(train))
        scores[name] = score(method.predict(_lay_out(test, known)).reshape(truth.shape), truth)
    return scores


def _lay_out(rows: Frame, known: TabularMetadata) -> np.ndarray:
    numbers, categories = known.lay_out(rows)
    return np.hstack([numbers, np.where(categories < _MOST, categories, 0)])
