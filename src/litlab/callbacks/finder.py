"""What the finders of settings share."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from litlab.util.files import write_atomically
from litlab.util.team import typed


class Finder(Callback, ABC):
    """Find a setting before the training starts; a resumed run keeps it.

    Args:
        train: Whether the training follows.
    """

    key: str  # of what a checkpoint keeps
    what: str  # is found

    def __init__(self, train: bool) -> None:
        self.train = train
        self.found: float | None = None
        self._before: float | None = None

    @abstractmethod
    def value(self, trainer: Trainer, pl_module: LightningModule) -> float:
        """Return the setting as it is."""

    @abstractmethod
    def set_value(self, trainer: Trainer, pl_module: LightningModule, value: float) -> None:
        """Change the setting, before optimizers and loaders are made."""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep what was found, and the setting in whose place it is."""
        if self.found is not None:
            checkpoint[self.key] = {"found": self.found, "before": self._before}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Set it in a resumed run; a setting that was changed since counts."""
        if trainer.state.fn != "fit" or self.key not in checkpoint:
            return
        self.found, self._before = checkpoint[self.key]["found"], checkpoint[self.key]["before"]
        if self.value(trainer, pl_module) == self._before:
            self.set_value(trainer, pl_module, checkpoint[self.key]["found"])
            found = f"{self.found:g}" if isinstance(self.found, float) else self.found
            rank_zero_info(
                f"{type(self).__name__}: the run keeps the {self.what} that was found when it started, {found}"
            )


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
    write_atomically(file, lambda stream: stream.write(text.encode()))
    return file


def searches(trainer: Trainer) -> bool:
    """Whether a fit is one to search in: new, and more than a trial of the code."""
    return trainer.ckpt_path is None and not trainer.fast_dev_run  # pyright: ignore[reportAttributeAccessIssue]
