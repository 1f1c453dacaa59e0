"""What all tests of the callbacks do without: Lightning's advice to load small data in several
processes.
"""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.filterwarnings("ignore:.*does not have many workers"))
