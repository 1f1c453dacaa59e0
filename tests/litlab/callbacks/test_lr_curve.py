"""What is read off the curve of a learning-rate search."""

import math

import numpy as np
import pytest

from litlab.callbacks.lr_curve import suggestion


def curve(fall_at: float, rise_at: float, noise: float = 0.0, steps: int = 100) -> tuple[list[float], list[float]]:
    rates = [1e-6 * 10 ** (7 * step / (steps - 1)) for step in range(steps)]
    rng = np.random.default_rng(0)
    falls = [2.0 - 1.5 / (1 + (fall_at / rate) ** 2) + (rate / rise_at) ** 2 for rate in rates]
    return rates, [loss + noise * rng.normal() for loss in falls]


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_steepest_fall_is_suggested(noise):
    found = suggestion(*curve(fall_at=1e-3, rise_at=1.0, noise=noise))
    assert found is not None
    assert math.log10(found.rate) == pytest.approx(-3, abs=0.35)


def test_it_is_the_fall_per_factor_not_per_unit():
    """Noise at the lowest rates, over which the same difference is a huge slope, does not win."""
    rates, losses = curve(fall_at=1e-2, rise_at=5.0)
    losses[12] -= 0.01
    found = suggestion(rates, losses)
    assert found is not None
    assert found.rate == pytest.approx(1e-2, rel=0.6)


@pytest.mark.parametrize("after", [[], [1e30], [math.nan, 0.0], [math.inf] * 5])
def test_a_divergence_hides_nothing(after):
    rates, losses = curve(fall_at=1e-3, rise_at=1.0)
    end = len(losses) - len(after)
    found = suggestion(rates, losses[:end] + after)
    assert found is not None
    assert found.rate == pytest.approx(1e-3, rel=1.0)


@pytest.mark.parametrize("losses", [[2.0] * 50, [2.0 + 0.1 * step for step in range(50)], [1.0] * 5, [math.nan] * 50])
def test_no_fall_no_suggestion(losses):
    assert suggestion([1e-6 * 1.3**step for step in range(len(losses))], losses) is None


@pytest.mark.parametrize("seed", range(5))
def test_where_the_fall_is_lost_in_the_noise_the_rise_counts(seed):
    rates, _ = curve(1.0, 1.0)
    noise = 0.1 * np.random.default_rng(seed).normal(size=100)
    assert suggestion(rates, list(2 + noise)) is None
    found = suggestion(rates, [2 + extra + (rate / 0.1) ** 2 for rate, extra in zip(rates, noise, strict=True)])
    assert found is not None
    assert found.why.startswith("a tenth of")
    assert 2e-3 < found.rate < 0.1
