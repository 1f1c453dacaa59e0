"""The resolved config, in the run folder and in every checkpoint."""

from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback

from project.runs.changes import OF_THE_COMMAND

KEPT = ("ckpt_path", "init_from")  # where a run began


class RunConfig(SaveConfigCallback):
    """Keep the resolved config of a fit, in its folder and in its checkpoints, which can so be used without it.

    What a command says of itself (``resume``, ``check``) is left out. A run without a logger has no folder, other verbs
    than ``fit`` leave the config of the run as it is.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save ``config.yaml`` once."""
        if stage != "fit":
            return
        config = self.config.clone()
        for name in set(OF_THE_COMMAND) - set(KEPT):
            config.pop(name, None)
        self.config = Namespace(config)
        self._text = self.parser.dump(self.config, skip_none=False)  # once: it takes as long as many steps
        if trainer.loggers:
            super().setup(trainer, pl_module, stage)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the config into the checkpoint, as text."""
        checkpoint["config"] = self._text
