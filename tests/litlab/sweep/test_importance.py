"""How much each searched setting mattered."""

from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from litlab.sweep.importance import importances
from tests.litlab.sweep.studies import create, ended, spec

UNIT = FloatDistribution(0.0, 1.0)
SPACE: dict[str, BaseDistribution] = {
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "kind": CategoricalDistribution(["a", "b", None]),
    "idle": UNIT,
}


def shares_of(tmp_path, trials: int, value, **fields):
    """Importances of random trials; `value` makes the values from settings, of which "extra" is there if kind is a."""
    sweep = spec(tmp_path, **fields)
    made, rng = create(sweep), np.random.default_rng(0)
    for _ in range(trials):
        params: dict[str, Any] = {"rate": 10 ** rng.uniform(-4, 0), "kind": ["a", "b", None][rng.integers(3)]}
        params["idle"], space = rng.uniform(), dict(SPACE)
        if params["kind"] == "a":
            params["extra"], space["extra"] = rng.uniform(), UNIT
        ended(made, params, space, values=value(params))
    return importances(sweep, made.trials)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_ranges_and_choices_have_their_share(tmp_path, direction):
    # Variances: 1.33 by the decades of the rate, which Optuna's fANOVA takes for nothing, 0.89 by the kind.
    def value(params):
        return [np.log10(params["rate"]) + 2 * (params["kind"] == "b")]

    shares, remark = shares_of(tmp_path, 60, value, directions=[direction])
    assert 0.5 < shares["val/acc"]["rate"] < 0.8
    assert 0.2 < shares["val/acc"]["kind"] < 0.5
    assert shares["val/acc"]["idle"] < 0.03
    assert sum(shares["val/acc"].values()) == pytest.approx(1)
    assert remark == "Share of each setting in what a random forest explains of 60 completed trials."


def test_conditional_settings_count_for_what_they_do_and_not_for_being_there(tmp_path):
    idle, _ = shares_of(tmp_path, 60, lambda params: [float(params["kind"] == "a")])
    assert idle["val/acc"]["kind"] > 0.9
    assert idle["val/acc"]["extra"] < 0.05
    used, _ = shares_of(tmp_path, 60, lambda params: [abs(params.get("extra", 0.5) - 0.5)])
    assert used["val/acc"]["extra"] > 0.7


def test_each_metric_has_importances_of_its_own(tmp_path):
    def value(params):
        return [params["idle"], np.log10(params["rate"]), 1.0]

    directions = ["maximize", "minimize", "minimize"]
    shares, remark = shares_of(tmp_path, 30, value, metrics=["val/acc", "cost", "same"], directions=directions)
    assert list(shares) == ["val/acc", "cost"]
    assert shares["val/acc"]["idle"] > 0.8
    assert shares["cost"]["rate"] > 0.8
    assert remark.endswith("of 30 completed trials. A rough guide: few trials.")


def test_the_same_trials_have_the_same_importances(tmp_path):
    first, second = (shares_of(tmp_path, 20, lambda params: [params["idle"]]) for _ in range(2))
    assert first == second


def test_it_says_why_they_are_not_known(tmp_path):
    few = shares_of(tmp_path, 9, lambda params: [params["idle"]])
    assert few == ({}, "Importances need 10 completed trials; there are 9.")
    constant = shares_of(tmp_path, 12, lambda _: [0.5])
    assert constant == ({}, "Importances are not known: no setting made a difference.")
