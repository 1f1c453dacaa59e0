"""What makes a test of a table tell too much: rows that training has as well, a column that gives the target away."""

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from litlab.data.frames import Column, Frame
from litlab.data.tables.encoding import hash_rows

_COPIES = 0.05  # of the test rows: fewer are tolerable
_SAME = 0.95  # of the copies: so many have the same target
_ROWS = 5_000  # that are looked at for columns which tell the target
_LEAF = 3  # rows at least in each leaf of a tree: fewer would learn by heart
_ACCURACY, _R2 = 0.99, 0.999


def warn_of_copies(frame: Frame, targets: list[str], split: Column, where: object) -> None:
    """Warn where many test rows are in training, too.

    In a table of few columns the same inputs come again by chance: then they have different targets.

    Args:
        frame: The inputs and targets of all rows.
        targets: Names of the targets.
        split: The split of each row.
        where: What messages call the table.
    """
    inputs = hash_rows(frame.drop(columns=targets))
    is_test = split == "test"
    copies = inputs[is_test & inputs.isin(inputs[split == "train"])]
    outcomes = hash_rows(frame).groupby(inputs).nunique()
    if len(copies) > _COPIES * is_test.sum() and outcomes[copies].eq(1).mean() > _SAME:
        rank_zero_info(
            f"warning: {where}: {len(copies):,} of {is_test.sum():,} test rows are copies of training rows, so the "
            "test tells less; delete copies, or name what they share in data.group_column"
        )


def warn_of_leaks(inputs: np.ndarray, target: np.ndarray, names: list[str], where: object) -> None:
    """Warn of columns each of which tells the target all by itself: by a tree whose leaves have three rows at least.

    Args:
        inputs: Inputs of the training rows, (row, column).
        target: Their classes, int64 of shape (row,), or targets, float of shape (row, target).
        names: Names of the columns.
        where: What messages call the table.
    """
    chosen = np.random.default_rng(0).permutation(len(target))[:_ROWS]
    inputs, target = inputs[chosen], target[chosen]
    if target.dtype == np.int64:
        tree, score, enough = DecisionTreeClassifier(min_samples_leaf=_LEAF), balanced_accuracy_score, _ACCURACY
    else:
        tree, score, enough = DecisionTreeRegressor(min_samples_leaf=_LEAF), r2_score, _R2
    leaks = []
    for name, column in zip(names, inputs.T[:, :, None], strict=True):
        if score(target, tree.fit(column, target).predict(column)) > enough:
            leaks.append(repr(name))
    if leaks:
        rank_zero_info(
            f"warning: {where}: column {', '.join(leaks)} alone tells the target (nearly) without error; leave "
            "out what would not be known when predicting: data.ignore"
        )
