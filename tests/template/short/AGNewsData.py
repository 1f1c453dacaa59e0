"""The tiny texts."""

from collections.abc import Callable
from typing import Any


def settings(fixture: Callable[[str], Any]) -> list[str]:
    """Flags; `fixture` gives a fixture of the tests by its name."""
    return ["--data.dataset=csv", f"--data.path={fixture('texts')}", "--data.batch_size=32"]
