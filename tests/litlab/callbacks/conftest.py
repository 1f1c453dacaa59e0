"""Figures that are looked at as they are."""

from typing import Any

import pytest


@pytest.fixture
def figures(monkeypatch) -> dict[str, Any]:
    """The figures that callbacks would draw into files and loggers, by name."""
    figures = {}
    for module in ("evaluation", "forecast_plots", "image_plots"):
        monkeypatch.setattr(
            f"litlab.callbacks.{module}.publish_figure",
            lambda trainer, folder, name, figure: figures.update({name: figure}),
        )
    return figures
