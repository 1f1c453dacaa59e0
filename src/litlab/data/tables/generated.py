"""A table made by arithmetic, for machines without data: no real customers, but something to learn."""

import numpy as np

from litlab.data.frames import Frame

_ROWS, _CITIES = 6_000, 40
_PLANS, _CHANNELS = ("basic", "family", "student", "business"), ("phone", "shop", "web")


def make_customers(targets: list[str]) -> Frame:
    """Make a table of 6,000 customers; every call makes the same. Of churn and spend it has what is a target.

    Columns of numbers: age, income (a twelfth is missing), visits and distance, which says nothing. Of categories:
    plan, city (some are rare) and channel (a twentieth is missing). What income means depends on the plan, what visits
    mean on the channel, age goes up and down, and each city has a level of its own. Of targets: churn (yes or no) and
    spend, a number.
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, _CITIES + 1)
    age, income = rng.uniform(18, 80, _ROWS), rng.lognormal(10, 0.5, _ROWS)
    visits, distance = rng.poisson(3, _ROWS), rng.exponential(10, _ROWS)
    plan, channel = rng.choice(_PLANS, _ROWS), rng.choice(_CHANNELS, _ROWS)
    city = rng.choice(_CITIES, _ROWS, p=frequency / frequency.sum())

    score = np.where(np.isin(plan, _PLANS[:2]), 1, -1) * (np.log(income) - 10) / 0.5
    score += np.where(channel == "phone", 0.5, -0.25) * (visits - 3)
    score += 1.2 * np.sin(age / 7) + 0.7 * rng.standard_normal(_CITIES)[city]

    columns = {
        "age": age.round(),
        "income": np.where(rng.random(_ROWS) < 1 / 12, np.nan, income.round()),
        "visits": visits,
        "distance": distance.round(1),
        "plan": plan,
        "city": [f"city {number:02}" for number in city + 1],
        "channel": pd.Series(channel).mask(rng.random(_ROWS) < 1 / 20),
        "churn": np.where(score + 0.5 * rng.logistic(size=_ROWS) > 0, "yes", "no"),
        "spend": (100 + 30 * score + 15 * rng.standard_normal(_ROWS)).round(2),
    }
    others = [name for name in ("churn", "spend") if name not in targets]
    return pd.DataFrame(columns).drop(columns=others)
