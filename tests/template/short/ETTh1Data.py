"""The tiny series."""

from collections.abc import Callable
from typing import Any


def settings(fixture: Callable[[str], Any]) -> list[str]:
    """Flags; `fixture` gives a fixture of the tests by its name."""
    return [
        "--data.dataset=csv", f"--data.path={fixture('series')}", "--data.targets=[load]", "--data.context_length=48",
        "--data.horizon=24", "--data.batch_size=48", "--data.val_fraction=0.2",
    ]  # fmt: skip
