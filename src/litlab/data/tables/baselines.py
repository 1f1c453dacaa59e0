"""What a network on a table has to beat, and what makes its test tell too much, by scikit-learn."""

from typing import Any

import numpy as np
import pandas as pd
from lightning.pytorch.utilities import rank_zero_info
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor

from litlab.data.files import Frame
from litlab.data.tables.serving import TabularMetadata

_MOST_CATEGORIES = 255  # categories that histogram gradient boosting takes
_MOST_ROWS = 5_000  # rows that are looked at for columns which tell the target


def score_baselines(
    train: Frame, test: Frame, metadata: TabularMetadata
) -> dict[str, dict[str, float]]:
    """Score simple methods on the test rows.

    They learn from the training rows alone. Boosting gets the numbers as they are, and of each
    column of categories the 254 most frequent ones.

    Args:
        train: The training rows, as `TabularData` reads them.
        test: The test rows.
        metadata: Columns and classes.

    Returns:
        For the mean or most frequent class, and for boosting, their test metrics, as `scores` names
        them.
    """
    # Boosting takes missing numbers and categories as they are; regression of a label's 0 and 1
    # gives its probability
    is_category = [False] * len(metadata.numbers) + [True] * len(metadata.categories)
    options: Any = {"categorical_features": is_category, "random_state": 0}
    if metadata.task == "classification":
        boosting: Any = HistGradientBoostingClassifier(**options)
    else:
        boosting = MultiOutputRegressor(HistGradientBoostingRegressor(**options))

    inputs, test_inputs = _arrange_inputs(train, metadata), _arrange_inputs(test, metadata)
    target, truth = metadata.target.encode(train), metadata.target.encode(test)
    predicted = boosting.fit(inputs, target).predict(test_inputs).reshape(truth.shape)
    guess = metadata.target.score_guess(target, truth)
    return guess | {"gradient boosting": metadata.target.score(predicted, truth)}


def _arrange_inputs(rows: Frame, metadata: TabularMetadata) -> np.ndarray:
    # The most frequent categories come first; all others join 0, those that training lacks
    numbers, categories = metadata.arrange_inputs(rows)
    return np.hstack([numbers, np.where(categories < _MOST_CATEGORIES, categories, 0)])


def warn_of_leaks(train: Frame, test: Frame, targets: list[str], where: object) -> None:
    """Warn of test rows that are in training, too, and of columns each of which tells the target
    all by itself.

    Args:
        train: The training rows.
        test: The test rows.
        targets: The columns to predict.
        where: What messages call the table.
    """
    # In a table of few columns the same inputs come by chance: then they have different targets,
    # and are no copies.
    different = train.drop_duplicates()
    inputs = different.drop(columns=targets)
    copies = len(test.merge(different))
    if copies > 0.05 * len(test) and inputs.duplicated().mean() < 0.05:
        rank_zero_info(
            f"warning: {where}: training has {copies:,} of {len(test):,} test rows, too, so the "
            "test tells less; delete copies, or name what they share in data.group_column"
        )

    # A tree for each column, whose leaves have three rows at least: fewer would learn by heart.
    rows = train.iloc[:: 1 + len(train) // _MOST_ROWS]
    outcomes = pd.get_dummies(rows[targets])  # the R2 of each class tells of rare ones, too
    tree = DecisionTreeRegressor(min_samples_leaf=3)
    for name in inputs:
        # A tree looks at the order of values alone, and that of categories is as good as any
        codes = rows[name].factorize(sort=True)[0].reshape(-1, 1)
        if tree.fit(codes, outcomes).score(codes, outcomes) > 0.999:
            rank_zero_info(
                f"warning: {where}: column {name} alone tells the target (nearly) without error; "
                "leave it out (data.ignore) if it is not known when predicting"
            )
