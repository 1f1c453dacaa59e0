"""The tiny images, in batches that all of them fit into."""

from collections.abc import Callable
from typing import Any


def settings(fixture: Callable[[str], Any]) -> list[str]:
    """Flags; `fixture` gives a fixture of the tests by its name."""
    return ["--data.dataset=folder", f"--data.path={fixture('images')}", "--data.batch_size=40"]
