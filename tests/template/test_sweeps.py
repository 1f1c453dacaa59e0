"""The shipped sweeps."""

import pytest

from litlab.commands.sweep.spec import check_space, read_spec
from tests.conftest import CONFIGS

FURTHER = ("forecast", "optimizers", "text", "regularisation", "schedules")


@pytest.mark.parametrize("name", ["cifar", *(pytest.param(name, marks=pytest.mark.matrix) for name in FURTHER)])
def test_sweep_fits_its_config(name):
    """Every path and value, by the parser of fit."""
    check_space(read_spec(CONFIGS / f"sweeps/{name}.yaml"))
