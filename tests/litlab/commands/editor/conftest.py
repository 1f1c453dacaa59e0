"""The schema of the team's configs, written once."""

from typing import Any

import pytest

from tests.litlab.commands.editor.schemas import write_schema


@pytest.fixture(scope="session")
def schema(tmp_path_factory) -> dict[str, Any]:
    return write_schema("auks", tmp_path_factory.mktemp("schema"))
