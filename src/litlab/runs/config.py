"""The resolved config, in the run folder, in every checkpoint and in the loggers."""

import re
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.callbacks.reporting.loggers import log_file, log_settings
from litlab.runs.compare import flat_config
from litlab.runs.config_diff import OF_THE_COMMAND
from litlab.runs.folder import RunFolder, write_text
from litlab.runs.masking import mask

KEPT = ("ckpt_path", "init_from")  # where a run began
NO_RESULTS = ("vram/", "memory/", "time/", "data/", "lr-")  # metrics that say nothing of the model


class RunConfig(SaveConfigCallback):
    """Keep the resolved config of a fit in its folder and in its checkpoints, which need no other config then.

    Every logger gets it as flat hyper-parameters (``data.batch_size``, ``model.width``), those that keep files get the
    file too, both with secrets masked. What belongs to a command (``resume``, ``check``) is left out. A run without
    a logger has no folder; commands other than ``fit`` leave the config of the run as it is.
    """

    _text: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.results: dict[str, float] = {}  # metrics of the fit's last epoch, and of the test after it

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save ``config.yaml``."""
        # Lightning would log the model's and the data's settings once more, under bare names, and refuses to where the
        # two have different values of one name.
        trainer.enable_autolog_hparams = False
        if stage != "fit":
            return
        config = self.config.clone()
        for name in set(OF_THE_COMMAND) - set(KEPT):
            config.pop(name, None)
        self.config = Namespace(config)
        self._text = self.parser.dump(self.config, skip_none=False)  # once: it takes as long as many steps
        log_dir = trainer.log_dir if trainer.loggers else None  # on every rank: it is broadcast
        if trainer.loggers and trainer.is_global_zero:
            # Not by SaveConfigCallback, which leaves half a file where it is killed, and nothing after a power cut.
            if log_dir is not None:
                write_text(RunFolder(Path(log_dir)).config, self._text)
            self.save_config(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Send the config to the loggers; called on rank zero only."""
        log_settings(trainer, self.hyperparameters())
        # Masked as data: a mask in the text is not valid YAML.
        log_file(trainer, self.config_filename, yaml.safe_dump(self._masked(), sort_keys=False, allow_unicode=True))

    def hyperparameters(self) -> dict[str, Any]:
        """Return the settings by dotted name, secrets masked; names in the characters that all loggers accept."""
        return {re.sub(r"[^\w./ :-]", "_", name): value for name, value in flat_config(self._masked()).items()}

    def _masked(self) -> dict[str, Any]:
        assert self._text is not None  # since `setup`
        return mask(yaml.load(self._text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the loggers draw the model's graph, as Lightning does where it logs the settings."""
        for logger in trainer.loggers:
            logger.log_graph(pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the metrics of the last epoch."""
        metrics = trainer.callback_metrics  # on every rank: what is not reduced yet is reduced together
        kept = {name: float(value) for name, value in metrics.items() if not name.startswith(NO_RESULTS)}
        self.results |= {name: value for name, value in kept.items() if not name.endswith("_step")}

    on_test_end = on_fit_end

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the config into the checkpoint, as text."""
        if self._text is not None:  # an exception before the setup may be saved too
            checkpoint["config"] = self._text


def log_results(trainer: Trainer) -> None:
    """Fill TensorBoard's HPARAMS tab at the end of a run, as it takes settings and results together.

    The results get tags of their own: ``hp/best/val/acc``, ``hp/val/acc`` (of the last epoch), ``hp/test/acc``. Nothing
    is logged for a run that was interrupted.

    Args:
        trainer: The trainer, after its fit and the test that may follow.
    """
    boards = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
    if trainer.interrupted or not trainer.is_global_zero:
        return
    checkpoint = trainer.checkpoint_callback
    for config in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(config, RunConfig):
            results = {f"hp/{name}": value for name, value in config.results.items()}
            results["hp/steps"] = trainer.global_step  # without any result, nothing would be written
            if isinstance(checkpoint, ModelCheckpoint) and checkpoint.best_model_score is not None:
                results[f"hp/best/{checkpoint.monitor}"] = float(checkpoint.best_model_score)
            for board in boards:
                board.log_hyperparams(config.hyperparameters(), results, step=trainer.global_step)
                board.finalize("success")
