"""The shipped sweeps."""

import pytest

from litlab.commands.sweep.spec import check_space, read_spec
from tests.conftest import CONFIGS


@pytest.mark.parametrize("file", sorted((CONFIGS / "sweeps").glob("*.yaml")), ids=lambda file: file.stem)
def test_sweep_fits_its_config(file):
    """Every path and value, by the parser of fit."""
    check_space(read_spec(file))
