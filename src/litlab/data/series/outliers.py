"""Values so far from the others that no scale suits both."""

import numpy as np

from litlab.data.series.timeline import Series
from litlab.errors import UserError

_ODD, _IMPOSSIBLE = 100, 1e6  # distances from the median, in those that are usual
_SHARE = 100  # one row in so many may be far from the others


def check_outliers(series: Series, rows: int, name: str) -> list[str]:
    """Look for values that set the scale of a column by themselves.

    Args:
        series: The series.
        rows: Number of training rows.
        name: What the series is, for messages.

    Returns:
        A warning for each column with a value that is far from the others.

    Raises:
        UserError: A value is so far that the others would all be scaled to the same number.
    """
    warnings = []
    with np.errstate(over="ignore"):
        distance = np.abs(series.values[:rows] - np.median(series.values[:rows], axis=0))
    for number, column in enumerate(series.names):
        own = np.sort(distance[:, number])[: max(1, rows - max(1, rows // _SHARE))]
        place, most = int(distance[:, number].argmax()), distance[:, number].max()
        largest = own.max()
        usual = largest / most * np.sqrt(np.mean((own / largest) ** 2)) if largest > 0 else 0.0
        what = f"{name}: column {column!r} is {series.values[place, number]:g} {series.where(place)}"
        if 0 < usual < 1 / _IMPOSSIBLE:
            raise UserError(f"{what}, which makes all other training rows alike when it is scaled; correct or empty it")
        if usual < 1 / _ODD and most > 0:
            far = (
                f"{1 / usual:,.0f} times as far from the median as is usual" if usual else "and nearly always the same"
            )
            warnings.append(f"warning: {what}, {far}: the column's scale is that of a few values")
    return warnings
