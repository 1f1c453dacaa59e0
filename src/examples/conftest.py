"""The fixtures of tests/conftest.py, for the tests of the examples."""

from tests.conftest import *  # noqa: F403 - and what pytest calls
from tests.conftest import (  # noqa: F401 - of each test
    _one_command_per_process,
    _one_thread,
    _settings_at_start,
    _team,
)
