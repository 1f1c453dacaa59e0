"""The schemas of the team's configs, written once."""

from typing import Any

import pytest

from tests.litlab.commands.editor.schemas import written


@pytest.fixture(scope="session")
def schemas(tmp_path_factory) -> dict[str, dict[str, Any]]:
    """What the command ``schema`` writes, by the name of the file."""
    return written("auks", tmp_path_factory.mktemp("schemas"))
