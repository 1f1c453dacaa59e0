"""What makes a test of a table tell too much: rows that training has as well, a column that gives the target away."""

import pandas as pd
from lightning.pytorch.utilities import rank_zero_info
from sklearn.tree import DecisionTreeRegressor

from litlab.data.frames import Frame

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
    inputs = different.drop(columns=targets)
    copies = len(test.merge(different))
    if copies > 0.05 * len(test) and inputs.duplicated().mean() < 0.05:
        rank_zero_info(
            f"warning: {where}: {copies:,} of {len(test):,} test rows are copies of training rows, so the test "
            "tells less; delete copies, or name what they share in data.group_column"
        )

    # A tree for each column, whose leaves have three rows at least: fewer would learn by heart.
    rows = train.iloc[:: 1 + len(train) // _MOST]
    outcomes = pd.get_dummies(rows[targets])  # the R2 of each class tells of rare ones, too
    tree = DecisionTreeRegressor(min_samples_leaf=3)
    for name in inputs:
        places = rows[name].factorize(sort=True)[0].reshape(-1, 1)
        if tree.fit(places, outcomes).score(places, outcomes) > 0.999:
            rank_zero_info(
                f"warning: {where}: column {name} alone tells the target (nearly) without error; leave it out "
                "(data.ignore) if it is not known when predicting"
            )
