"""The smallest experiment: it finds the line, and says so beside least squares."""

import re

import pytest

from tests.conftest import CONFIGS


def test_it_learns_the_line_that_least_squares_finds_and_shows_it_meanwhile(run):
    done = run("fit --config", CONFIGS / "linear.yaml", "--trainer.accelerator=cpu").check()
    rows = re.findall(
        r"^(learned|least squares) +weight (\S+)  bias (\S+)$", done.out, re.MULTILINE
    )
    table = {name: (float(weight), float(bias)) for name, weight, bias in rows}
    assert table["least squares"] == pytest.approx((3, 2), abs=0.05)
    assert table["learned"] == pytest.approx(table["least squares"], abs=0.03)
    shown = re.findall(r"^epoch \d+/10  bias (\S+) .*weight (\S+) ", done.out, re.MULTILINE)
    assert (float(shown[-1][1]), float(shown[-1][0])) == pytest.approx(table["learned"], abs=2e-3)
