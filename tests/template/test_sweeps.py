"""The shipped sweeps."""

import pytest

from litlab.commands.sweep.check import completed_space
from litlab.commands.sweep.spec import read_spec
from tests.conftest import CONFIGS


@pytest.mark.parametrize("name", ["cifar", "forecast", "text"])
def test_sweep_fits_its_config(monkeypatch, name):
    """Every path and value, by the parser of fit."""
    monkeypatch.setattr("sys.argv", ["check"])
    completed_space(read_spec(CONFIGS / f"sweeps/{name}.yaml"))
