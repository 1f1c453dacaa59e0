"""What makes a test of a table tell too much: rows that training has as well, a column that gives the target away."""

import pandas as pd
from lightning.pytorch.utilities import rank_zero_info
from sklearn.tree import DecisionTreeRegressor

from litlab.data.frames import Frame
from litlab.util.text import some

_MOST = 5_000  # rows that are looked at for columns which tell the target


def warn_of_leaks(train: Frame, test: Frame, targets: list[str], where: object) -> None:
    """Warn of test rows that are in training, too, and of columns each of which tells the target all by itself.

    Args:
        train: The training rows.
        test: The test rows.
        targets: The columns to predict.
        where: What messages call the table.
    """
    # In a table of few columns the same inputs come by chance: then they have different targets, and are no copies.
    different = train.drop_duplicates()
    copies = len(test.merge(different))
    different_inputs = different.drop(columns=targets).drop_duplicates()
    if copies > 0.05 * len(test) and len(different) < 1.05 * len(different_inputs):
        rank_zero_info(
            f"warning: {where}: {copies:,} of {len(test):,} test rows are copies of training rows, so the test "
            "tells less; delete copies, or name what they share in data.group_column"
        )

    # A tree for each column, whose leaves have three rows at least: fewer would learn by heart.
    rows = train.iloc[:: 1 + len(train) // _MOST]
    outcomes = pd.get_dummies(rows[targets])  # the R2 of each class tells of rare ones, too
    tree = DecisionTreeRegressor(min_samples_leaf=3)
    leaks = []
    for name in different_inputs:
        places = rows[name].factorize(sort=True)[0].reshape(-1, 1)
        if tree.fit(places, outcomes).score(places, outcomes) > 0.999:
            leaks.append(name)
    if leaks:
        rank_zero_info(
            f"warning: {where}: column {some(leaks)} alone tells the target (nearly) without error; leave out what "
            "would not be known when predicting: data.ignore"
        )
