"""What the command line adds to Lightning's Trainer: the run folder's logger, checkpoint files, cheap callbacks."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelSummary as LightningModelSummary
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins import CheckpointIO

from project.callbacks import ModelSummary
from project.errors import UserError
from project.runs.checkpoint import RunCheckpoint
from project.runs.checkpoint_files import AtomicCheckpointIO
from project.runs.folder import ROOT, RunFolder

# Lightning calls these of every callback at every step, about 5 µs each, even where a callback leaves them empty.
STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip


def loggers(config: Any, experiment: str, run: RunFolder | None, step: int | None) -> list[Logger]:
    """TensorBoard in the run folder, and what ``trainer.logger`` names beside it.

    Args:
        config: The section ``trainer``.
        experiment: The name of a new run's folder.
        run: The run that is gone on with; None for a new one.
        step: The optimizer step that it goes on from. What was logged later, before it was killed, is hidden.

    Raises:
        UserError: If the name is no name of a folder.
    """
    named = config["logger"]
    further = [] if named is None or isinstance(named, bool) else named if isinstance(named, list) else [named]
    if run is not None:
        folder = TensorBoardLogger(
            run.path.parent, name="", version=run.path.name, default_hp_metric=False, purge_step=step
        )
        return [folder, *(logger for logger in further if not isinstance(logger, TensorBoardLogger))]
    if any(isinstance(logger, TensorBoardLogger) for logger in further):
        return further  # the folder is as it says
    root = Path(config["default_root_dir"] or ".") / ROOT
    if not experiment or ".." in Path(experiment).parts or Path(experiment).is_absolute():
        raise UserError(f"experiment: '{experiment}' is no name of a folder in {root}.")
    return [TensorBoardLogger(root, name=experiment, default_hp_metric=False), *further]


def further_callbacks(config: Any) -> list[Callback]:
    """The callbacks that ``trainer.callbacks`` names, and a summary of the model where none of them is one."""
    named = config["callbacks"] or []
    chosen = list(named) if isinstance(named, list) else [named]
    wanted = config["enable_model_summary"] is not False and not config["barebones"]
    if wanted and not any(isinstance(callback, LightningModelSummary) for callback in chosen):
        chosen.append(ModelSummary())
    return chosen


def plugins(config: Any) -> list[Any]:
    """The plugins that ``trainer.plugins`` names, and checkpoint files that are whole, where a file holds it all."""
    named = config["plugins"] or []
    chosen = list(named) if isinstance(named, list | tuple) else [named]
    strategy = config["strategy"]
    whole = isinstance(strategy, str) and (strategy == "auto" or strategy.startswith("ddp"))  # others write shards
    if whole and not any(isinstance(plugin, CheckpointIO) for plugin in chosen):
        chosen.append(AtomicCheckpointIO())
    return chosen


def drop_empty_hooks(trainer: Trainer) -> None:
    """Takes out the step hooks of callbacks that do nothing there: Lightning skips what can't be called."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for hook in STEP_HOOKS:
            if getattr(type(callback), hook) is getattr(Callback, hook):
                setattr(callback, hook, None)
        if isinstance(callback, RunCheckpoint) and not callback.within_epochs:
            setattr(callback, "on_train_batch_end", None)  # noqa: B010 - it does nothing then
