"""Splits, folds, windows, the calendar, the scale and the generated series, each for itself."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data.series.regular import Series
from litlab.data.series.ridge import _PENALTIES, fit_ridge
from litlab.data.series.serving import make_calendar, measure
from litlab.data.series.windows import find_ends, find_starts, split_rows
from litlab.data.split import SPLITS
from tests.litlab.data.conftest import refusal


def days(*rows: int, values: np.ndarray | None = None) -> Series:
    keys = [(name, time) for name, count in enumerate(rows) for time in pd.date_range("2024-01-01", periods=count)]
    values = np.random.default_rng(0).normal(size=(sum(rows), 1)) if values is None else values
    return Series(pd.DataFrame(values, pd.MultiIndex.from_tuples(keys), ["load"]), "D")


def parts(*sizes: int) -> np.ndarray:
    """Rows of train, val, test and none, one after the other, and so on."""
    return np.concatenate([[split] * size for size, split in zip(sizes, [*SPLITS, ""] * 9, strict=False)])


@pytest.mark.parametrize(
    ("ends", "rows", "cuts"),
    [
        (find_ends(0.1, 0.2, None), 99, (70, 10, 19)),  # what is left of the test is for training
        (find_ends(0.0, 0.71, None), 100, (29, 0, 71)),
        ([0.3, 0.6, 0.9], 30, (9, 9, 9, 3)),
    ],
)
def test_splits(ends, rows, cuts):
    assert split_rows(days(rows), ends).tolist() == parts(*cuts).tolist()
    several = split_rows(days(rows, rows, 7), ends)  # each series by itself
    assert several[: 2 * rows].tolist() == [*parts(*cuts), *parts(*cuts)]


def test_folds_are_blocks_of_time_that_follow_the_training():
    """Each has the share for validation at the end of its training; of several series, each by itself."""
    for number, cut in {0: (8, 2, 10, 40), 1: (16, 4, 10, 30), 4: (40, 10, 10, 0)}.items():
        split = split_rows(days(60, 120), find_ends(0.2, 0.2, f"{number}/5"))
        assert split.tolist() == [*parts(*cut), *parts(*(2 * size for size in cut))]


def test_windows_forecast_their_own_split_and_series_only():
    starts = find_starts(days(40, 30, 2), parts(20, 10, 10, 0, 4, 16, 10, 0, 1, 0, 1), 6, 3)
    assert starts["train"].tolist() == list(range(12))
    assert starts["val"].tolist() == [*range(14, 22), *range(40, 52)]
    assert starts["test"].tolist() == [*range(24, 32), *range(54, 62)]
    assert list(find_starts(days(90), parts(50, 0, 40), 10, 5)) == ["train", "test"]
    for sizes, message in (((14, 16, 10), "data: 14 train rows are too few for one"), ((20, 4, 16), "data: 4 val ")):
        assert refusal(find_starts, days(sum(sizes)), parts(*sizes), 10, 5).startswith(message)


def test_calendar_features_are_angles():
    times = pd.DatetimeIndex(["2024-02-11T06:45:00", "2023-12-31T23:15:00"])  # two Sundays
    features = make_calendar(times, ["hour", "minute", "weekday", "day", "month"])
    shares = [[6 / 24, 45 / 60, 6 / 7, 10 / 29, 1 / 12], [23 / 24, 15 / 60, 6 / 7, 30 / 31, 11 / 12]]
    angles = 2 * math.pi * torch.tensor(shares)
    torch.testing.assert_close(features, torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1))


@pytest.mark.parametrize("values", [[0.0, 1e300, 1.0], [0.1, 0.1, 0.1]])
def test_columns_that_can_not_be_scaled(values):
    message = refusal(measure, days(3, values=np.array(values)[:, None]), parts(3), 1)
    assert message.startswith("data.targets: column 'load' can't be scaled, its training rows are all the same, or too")


def test_the_ridge_of_several_series_is_that_of_their_windows_together():
    first, second = torch.randn(40, 2).cumsum(0), torch.randn(30, 2).cumsum(0)
    windows = torch.cat([rows.unfold(0, 8, 1).flatten(0, 1) for rows in (first, second)]).double()
    x, y = windows[:, :5], windows[:, 5:]
    mean = x.mean(1, keepdim=True)
    x, y = x - mean, y - mean
    gram = x.T @ x

    def solve(penalty: float) -> torch.Tensor:
        weight = torch.linalg.solve(gram + penalty * torch.linalg.eigvalsh(gram).mean() * torch.eye(5), x.T @ y).T
        return weight - weight.mean(1, keepdim=True) + 1 / 5

    starts, rows = {"train": torch.tensor([*range(33), *range(40, 63)])}, torch.cat([first, second])
    torch.testing.assert_close(fit_ridge(rows, starts, 5, 3), solve(0.01).float(), atol=1e-4, rtol=1e-3)

    # Of rows without a pattern, those for validation ask for the largest penalty
    rows = torch.cat([rows, torch.randn(30, 2)])
    penalised = fit_ridge(rows, starts | {"val": torch.arange(70, 93)}, 5, 3)
    torch.testing.assert_close(penalised, solve(max(_PENALTIES)).float(), atol=1e-4, rtol=1e-3)
