"""Small tables."""

import numpy as np
import pandas as pd

from litlab.data import TabularData


def make_houses(count: int = 100) -> pd.DataFrame:
    """Rows of two numbers, two categories and a price that follows from them; some ages are
    missing.
    """
    rng = np.random.default_rng(0)
    size, age = rng.uniform(20, 200, count).round(2), rng.integers(0, 90, count).astype(float)
    city = rng.choice(["Bonn", "Köln", "Mainz"], count)
    price = 1000 * size - 100 * age + 20_000 * (city == "Köln")
    price += rng.normal(0, 20_000, count).round()
    age[3::7] = np.nan
    kind = np.where(size + rng.normal(0, 20, count) > 110, "house", "flat")
    return pd.DataFrame({"size": size, "age": age, "city": city, "kind": kind, "price": price})


def make(frame: pd.DataFrame | None = None, **options) -> TabularData:
    """Makes data of 100 houses, or of other rows, as a CSV file; by default to regress the
    price.
    """
    (make_houses() if frame is None else frame).to_csv("houses.csv", index=False)
    return TabularData(**{"path": "houses.csv", "target": "price", "batch_size": 8, **options})
