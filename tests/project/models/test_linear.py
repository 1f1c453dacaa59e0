"""The smallest experiment: it finds the line, and says so beside least squares."""

import re
from pathlib import Path

import pytest

from tests.conftest import CONFIGS, command


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """The folder of a run of the config as it is, and what it printed in printed.txt."""
    root = tmp_path_factory.mktemp("linear")
    with pytest.MonkeyPatch.context() as patch, (root / "printed.txt").open("w") as printed:
        patch.chdir(root)
        patch.setattr("sys.stdout", printed)
        assert command(patch, "fit", "--config", CONFIGS / "linear.yaml", "--trainer.accelerator=cpu") == 0
    return root


def _table(printed: str) -> dict[str, tuple[float, float]]:
    rows = re.findall(r"^(learned|least squares) +weight (\S+)  bias (\S+)$", printed, re.MULTILINE)
    return {name: (float(weight), float(bias)) for name, weight, bias in rows}


def test_it_learns_the_line_that_least_squares_finds(fitted):
    table = _table((fitted / "printed.txt").read_text())
    assert table["least squares"] == pytest.approx((3, 2), abs=0.05)
    assert table["learned"] == pytest.approx(table["least squares"], abs=0.03)


def test_weight_and_bias_are_shown_while_they_are_learned(fitted):
    printed = (fitted / "printed.txt").read_text()
    shown = re.findall(r"^epoch \d+/10  bias (\S+) .*weight (\S+) ", printed, re.MULTILINE)
    assert len(shown) == 10
    learned = _table(printed)["learned"]
    assert (float(shown[-1][1]), float(shown[-1][0])) == pytest.approx(learned, abs=2e-3)
    assert abs(float(shown[0][1]) - 3) > abs(learned[0] - 3)
