"""The shipped sweeps."""

import pytest

from litlab.commands.sweep.check import completed_space
from litlab.commands.sweep.spec import read_spec
from tests.conftest import CONFIGS


@pytest.mark.parametrize("file", sorted((CONFIGS / "sweeps").glob("*.yaml")), ids=lambda file: file.stem)
def test_sweep_fits_its_config(monkeypatch, file):
    """Every path and value, by the parser of fit."""
    monkeypatch.setattr("sys.argv", ["check"])
    completed_space(read_spec(file))
