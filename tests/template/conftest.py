"""Tests of the template as it is shipped: its README, pages, configs, overlays and commands.

They are left out once the package has another name or an experiment is gone: then it is a team's
project, whose own tests are in tests/project/. Delete this folder when README.md and docs/ become
yours.
"""

import pytest

from tests.conftest import IS_WHOLE

collect_ignore_glob = [] if IS_WHOLE else ["test_*.py"]


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch) -> None:
    """Draws 4 of the images of a test: 32 of them take a second, in each of many runs."""
    from litlab.callbacks import image_plots

    pick = image_plots.EvenPick
    monkeypatch.setattr(image_plots, "EvenPick", lambda images, trainer: pick(4, trainer))
