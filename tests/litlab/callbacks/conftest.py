"""What all tests of the callbacks do without: Lightning's advice to load small data in several
processes. And figures that are looked at as they are.
"""

from typing import Any

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings("ignore:.*does not have many workers"))


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
