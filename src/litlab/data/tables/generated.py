"""A table made by arithmetic, for machines without data: no real customers, but something to learn."""

from pathlib import Path

import numpy as np

from litlab.data.bad_rows import BadRows
from litlab.data.tables.reading import Cells

_ROWS = 6_000
_CITIES, _PLANS, _CHANNELS = 40, ("basic", "family", "student", "business"), ("phone", "shop", "web")
TARGETS = ("churn", "spend")


def generated_cells(targets: list[str]) -> Cells:
    """Make a table of 6,000 customers; every call makes the same.

    Columns of numbers: age, income (a twelfth is missing), visits and distance, which says nothing. Of categories:
    plan, city (some are rare) and channel (a twentieth is missing). What income means depends on the plan, what visits
    mean on the channel, age goes up and down, and each city has a level of its own.

    Args:
        targets: Of `churn` (yes or no) and `spend` (a number) those that are to be columns.
    """
    rng = np.random.default_rng(0)

    def among(names: list[str] | tuple[str, ...], weights: np.ndarray | None = None) -> np.ndarray:
        return rng.choice(np.array(names, dtype=object), _ROWS, p=weights)

    frequency = 1 / np.arange(1, _CITIES + 1)
    cities = [f"city {number:02}" for number in range(1, _CITIES + 1)]
    age, income = rng.uniform(18, 80, _ROWS), rng.lognormal(10, 0.5, _ROWS)
    visits, distance = rng.poisson(3, _ROWS), rng.exponential(10, _ROWS)
    plan, channel, city = among(_PLANS), among(_CHANNELS), among(cities, frequency / frequency.sum())
    level = dict(zip(cities, 0.7 * rng.standard_normal(_CITIES), strict=True))
    richer = (np.log(income) - 10) / 0.5
    score = (
        np.where(np.isin(plan, _PLANS[:2]), richer, -richer)
        + np.where(channel == "phone", 0.5, -0.25) * (visits - 3)
        + 1.2 * np.sin(age / 7)
        + np.array([level[name] for name in city])
    )
    columns = {
        "age": np.char.mod("%.0f", age),
        "income": np.where(rng.random(_ROWS) < 1 / 12, "", np.char.mod("%.0f", income)),
        "visits": np.char.mod("%d", visits),
        "distance": np.char.mod("%.1f", distance),
        "plan": plan,
        "city": city,
        "channel": np.where(rng.random(_ROWS) < 1 / 20, "", channel),
        "churn": np.where(score + 0.5 * rng.logistic(size=_ROWS) > 0, "yes", "no"),
        "spend": np.char.mod("%.2f", 100 + 30 * score + 15 * rng.standard_normal(_ROWS)),
    }
    path = Path("generated table")
    shown = {name: column.astype(object) for name, column in columns.items() if name in targets or name not in TARGETS}
    numbers = list(range(2, _ROWS + 2))
    return Cells(path, numbers, numbers, shown, BadRows(path))
