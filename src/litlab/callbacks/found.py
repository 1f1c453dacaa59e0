"""What finders share: when they search, and the overlay of what they have found."""

from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Trainer

from litlab.util.atomic import write_whole
from litlab.util.team import typed


def write_overlay(folder: Path, name: str, says: str, settings: dict[str, Any]) -> Path:
    """Write settings as an overlay for ``fit``.

    Args:
        folder: The run folder.
        name: Name of the file, without its ending.
        says: What it holds, in lines of text.
        settings: Nested as in a config.

    Returns:
        The file.
    """
    file = folder / f"{name}.yaml"
    lines = [*says.splitlines(), f"  {typed('fit')} --config EXPERIMENT.yaml --config {file}"]
    text = "".join(f"# {line}\n" for line in lines) + yaml.safe_dump(settings, sort_keys=False)
    write_whole(file, lambda stream: stream.write(text.encode()))
    return file


def searches(trainer: Trainer) -> bool:
    """Whether a fit is one to search in: new, and more than a trial of the code."""
    return trainer.ckpt_path is None and not trainer.fast_dev_run  # pyright: ignore[reportAttributeAccessIssue]
