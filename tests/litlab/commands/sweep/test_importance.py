"""How much each searched setting mattered, as Optuna finds it by default and the report shows it.

PED-ANOVA knows logarithmic ranges and conditional settings; by some dozens of trials its shares are rough.
"""

from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from litlab.commands.sweep.figures import figures
from tests.litlab.commands.sweep.studies import create, ended, spec

UNIT = FloatDistribution(0.0, 1.0)
SPACE: dict[str, BaseDistribution] = {
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "kind": CategoricalDistribution(["a", "b", None]),
    "idle": UNIT,
}


def shares_of(tmp_path, trials: int, value, **fields) -> dict[str, dict[str, float]]:
    """Shares of random trials by metric; `value` makes the values from settings, of which "extra" needs the kind a."""
    sweep = spec(tmp_path, **fields)
    made, rng = create(sweep), np.random.default_rng(0)
    for _ in range(trials):
        params: dict[str, Any] = {"rate": 10 ** rng.uniform(-4, 0), "kind": ["a", "b", None][rng.integers(3)]}
        params["idle"], space = rng.uniform(), dict(SPACE)
        if params["kind"] == "a":
            params["extra"], space["extra"] = rng.uniform(), UNIT
        ended(made, params, space, values=value(params))
    found = [figure for title, _, figure in figures(sweep, made) if title.startswith("Importances")]
    return {bar.name: dict(zip(bar.y, bar.x, strict=True)) for figure in found for bar in figure.data}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_ranges_and_choices_have_their_share(tmp_path, direction):
    def value(params):
        return [np.log10(params["rate"]) + 2 * (params["kind"] == "b")]

    shares = shares_of(tmp_path, 60, value, directions=[direction])["val/acc"]
    assert list(shares)[::-1][:2] == ["rate", "kind"]  # the first one is drawn at the bottom
    assert shares["idle"] < 0.05
    assert sum(shares.values()) == pytest.approx(1)


def test_conditional_settings_count_for_what_they_do_and_not_for_being_there(tmp_path):
    idle = shares_of(tmp_path, 60, lambda params: [float(params["kind"] == "a")])["val/acc"]
    assert idle["kind"] > 0.8
    assert idle["extra"] < 0.05
    used = shares_of(tmp_path, 60, lambda params: [abs(params.get("extra", 0.5) - 0.5)])["val/acc"]
    assert used["extra"] > 0.5


def test_each_metric_has_importances_of_its_own(tmp_path):
    def value(params):
        return [params["idle"], np.log10(params["rate"])]

    shares = shares_of(tmp_path, 30, value, metrics=["val/acc", "cost"], directions=["maximize", "minimize"])
    assert max(shares["val/acc"], key=shares["val/acc"].__getitem__) == "idle"
    assert max(shares["cost"], key=shares["cost"].__getitem__) == "rate"


def test_few_trials_have_none(tmp_path):
    assert shares_of(tmp_path, 9, lambda params: [params["idle"]]) == {}
