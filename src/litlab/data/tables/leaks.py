"""What makes a test of a table tell too much: rows that training has as well, a column that gives the target away."""

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from sklearn.tree import DecisionTreeRegressor

from litlab.util.text import some

_MOST = 5_000  # rows that are looked at for columns which tell the target


Rows = tuple[np.ndarray, np.ndarray]


def warn_of_leaks(train: Rows, test: Rows, names: list[str], where: object) -> None:
    """Warn of test rows that are in training, too, and of columns each of which tells the target all by itself.

    In a table of few columns the same inputs come again by chance: then they have different targets, and are no copies.

    Args:
        train: Inputs of the training rows, (row, column); and their classes, int64 of shape (row,), or targets, float
            of shape (row, target).
        test: Likewise.
        names: Names of the columns.
        where: What messages call the table.
    """
    inputs, target = train
    rows = set(map(bytes, np.column_stack(train)))
    copies = sum(bytes(row) in rows for row in np.column_stack(test))
    if copies > 0.05 * len(test[1]) and len(rows) < 1.05 * len(set(map(bytes, inputs))):
        rank_zero_info(
            f"warning: {where}: {copies:,} of {len(test[1]):,} test rows are copies of training rows, so the test "
            "tells less; delete copies, or name what they share in data.group_column"
        )

    # A tree for each column, whose leaves have three rows at least: fewer would learn by heart.
    step = 1 + len(target) // _MOST
    inputs, target = inputs[::step], target[::step]
    if target.ndim == 1:
        target = np.eye(1 + target.max())[target]  # its R2 tells of rare classes, too
    tree, leaks = DecisionTreeRegressor(min_samples_leaf=3), []
    for name, column in zip(names, inputs.T[:, :, None], strict=True):
        if tree.fit(column, target).score(column, target) > 0.999:
            leaks.append(name)
    if leaks:
        rank_zero_info(
            f"warning: {where}: column {some(leaks)} alone tells the target (nearly) without error; leave out what "
            "would not be known when predicting: data.ignore"
        )
