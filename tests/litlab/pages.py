"""The code blocks of a page of the documentation; not a test itself."""

import re
from pathlib import Path

from tests.conftest import ROOT


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of a language in a page of docs/, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def run_blocks(page: str) -> dict[str, object]:
    """Run the Python blocks of a page one after the other; return the variables that they leave."""
    variables: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks(page, "python"), 1):
        exec(compile(block, f"{Path(page).name}, block {number}", "exec"), variables)
    return variables
