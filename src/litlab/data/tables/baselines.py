"""What a network on a table has to beat, by scikit-learn with its own settings, from the same training rows."""

from typing import Any

import numpy as np

from litlab.data.scores import classification_scores, regression_scores
from litlab.data.tables.encoding import encode
from litlab.data.tables.metadata import TabularMetadata
from litlab.data.tables.source import Table

_MOST = 255  # categories that histogram gradient boosting takes
_ITERATIONS = 1000  # scikit-learn's 100 are too few for a logistic regression of many columns


def tabular_baselines(table: Table, metadata: TabularMetadata) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    All of them learn from the training rows alone. The linear models get the columns as a network does, standardised,
    and the categories one-hot; boosting gets the numbers as they are, and the 255 most frequent categories of a column.

    Args:
        table: The table.
        metadata: What was learned from its training rows.

    Returns:
        For the mean or most frequent class, the linear model and boosting their test metrics, as `scores` names them.
    """
    train, test = table.take(table.places("train")), table.take(table.places("test"))
    linear, (known_trees, test_trees, categorical) = (
        _one_hot(train, test, metadata),
        _as_they_are(train, test, metadata),
    )
    settings: dict[str, Any] = {"categorical_features": categorical, "random_state": 0}
    if metadata.task == "classification":
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.linear_model import LogisticRegression

        number = {name: place for place, name in enumerate(metadata.class_names)}
        known, truth = (np.array([number[label] for label in part.target]) for part in (train, test))
        methods = {
            "most frequent class": np.full(len(truth), np.bincount(known).argmax()),
            "logistic regression": LogisticRegression(max_iter=_ITERATIONS).fit(linear[0], known).predict(linear[1]),
            "gradient boosting": HistGradientBoostingClassifier(**settings).fit(known_trees, known).predict(test_trees),
        }
        return {name: classification_scores(predicted, truth) for name, predicted in methods.items()}
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge

    known, truth = train.target, test.target
    boosted = [
        HistGradientBoostingRegressor(**settings).fit(known_trees, column).predict(test_trees) for column in known.T
    ]
    methods = {
        "mean": np.broadcast_to(known.mean(0), truth.shape),
        "ridge regression": Ridge().fit(linear[0], known).predict(linear[1]).reshape(truth.shape),
        "gradient boosting": np.stack(boosted, axis=1),
    }
    return {name: regression_scores(predicted, truth, metadata.targets) for name, predicted in methods.items()}


def _one_hot(train: Table, test: Table, metadata: TabularMetadata) -> list[Any]:
    """Return the inputs of training and test rows, standardised and one-hot, (row, column)."""
    from scipy.sparse import csr_array, hstack
    from sklearn.preprocessing import OneHotEncoder

    encoded = [[part.numpy() for part in encode(t.numbers, t.categories, metadata, "data")] for t in (train, test)]
    if not metadata.categories:
        return [numbers.astype(np.float64) for numbers, _ in encoded]
    one_hot = OneHotEncoder(handle_unknown="ignore").fit(encoded[0][1])
    return [
        hstack([csr_array(numbers, dtype=np.float64), one_hot.transform(codes)]).tocsr() for numbers, codes in encoded
    ]


def _as_they_are(train: Table, test: Table, metadata: TabularMetadata) -> tuple[np.ndarray, np.ndarray, list[bool]]:
    """Return the inputs of training and test rows, float64 (row, column), and which columns are categories."""
    parts = []
    for table in (train, test):
        codes = encode(table.numbers, table.categories, metadata, "data")[1].numpy()
        numbers = [table.numbers[name] for name in metadata.numbers]
        parts.append(np.stack([*numbers, *np.where(codes < _MOST, codes, 0).T.astype(np.float64)], axis=1))
    return parts[0], parts[1], [False] * len(metadata.numbers) + [True] * len(metadata.categories)
