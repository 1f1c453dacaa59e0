"""What is measured in the training rows of series."""

from typing import Any

import numpy as np

from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.regular import Series
from litlab.data.target import fit_numbers, sort_classes

_SEASONS = {"B": 5, "D": 7, "W": 52, "MS": 12, "ME": 12, "QS": 4, "QE": 4}


def measure(
    known: SeriesMetadata, series: Series, split: np.ndarray, season: int | None, where: str
) -> dict[str, Any]:
    """Measure the training rows of all series together.

    Args:
        known: What the columns are.
        series: The series.
        split: As of `split_rows`.
        season: Rows of a season; None: what is usual for the step. It is 1 where no series has two
            in training.
        where: What messages call the file.

    Returns:
        What `SeriesMetadata` has besides the columns. ``naive_error`` is the mean absolute
        difference to the row one season before, which MASE divides by (Hyndman & Koehler 2006).

    Raises:
        UserError: A column never changes, or its numbers are too large or too small.
    """
    train = series.table[split == "train"]
    parts = train[known.targets].groupby(level=0)
    season = season or find_season(series.freq)
    if 2 * season > parts.size().max():
        season = 1
    target = fit_numbers(train, known.targets, where)
    changes = abs(np.ascontiguousarray(parts.diff(season).dropna()))

    told = train[known.covariate_columns]
    numbers = list(told.select_dtypes("number"))
    scales = fit_numbers(told, numbers, where)
    texts = told.select_dtypes("string")
    return {
        "freq": series.freq,
        "static": series.static,
        "season": season,
        "target": target,
        "naive_error": (changes.mean(0) / target.std).tolist(),
        "numbers": {
            name: [mean, scale]
            for name, mean, scale in zip(numbers, scales.mean, scales.std, strict=True)
        },
        "categories": {name: sort_classes({*texts[name].dropna()} - {""}) for name in texts},
    }


def find_season(freq: str) -> int:
    """Return the rows of the season that is usual for a step: a day, a week of days, a year of
    weeks or months.
    """
    import pandas as pd

    day = pd.date_range("2024-01-01", "2024-01-02", freq=freq, inclusive="left")
    return _SEASONS.get(freq.partition("-")[0]) or len(day) or 1
