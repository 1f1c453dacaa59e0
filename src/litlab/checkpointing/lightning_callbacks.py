"""Lightning's own callbacks in a run that is resumed: what they leave out of checkpoints, or don't restore."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    SpikeDetection,
)
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_setattr

from litlab.checkpointing.accumulation import AccumulationSchedule
from litlab.errors import UserError

KEY = "tuned"  # in the checkpoint
FINDERS = (BatchSizeFinder, LearningRateFinder)


def make_resumable(callbacks: list[Callback], resumes: bool) -> list[Callback]:
    """Return the callbacks that ``trainer.callbacks`` names, with what some of Lightning's need to be resumed.

    Args:
        callbacks: What the config names.
        resumes: Whether the run continues from a checkpoint.

    Raises:
        UserError: If one of them can't be resumed.
    """
    found: list[Callback] = []
    finders: list[Callback] = [callback for callback in callbacks if isinstance(callback, FINDERS)]
    if finders:
        found.append(Tuned(finders, resumes))
    if resumes and any(isinstance(callback, BaseFinetuning) for callback in callbacks):
        found.append(Unfrozen())
    for callback in callbacks:
        if resumes and type(callback) in FINDERS:
            rank_zero_info(f"{type(callback).__name__}: the run keeps what was found when it started")
            continue
        if resumes and isinstance(callback, ModelPruning):
            raise UserError(
                "trainer.callbacks: ModelPruning keeps no masks in checkpoints, so the run can't be resumed; start a "
                "new one from its weights with --init_from, or leave the callback out"
            )
        if isinstance(callback, SpikeDetection) and not hasattr(callback, "running"):
            # Lightning (2.6.6) restores the running mean of a checkpoint under a name that it never sets.
            callback.running = callback.running_mean  # pyright: ignore[reportAttributeAccessIssue]
        is_plain = type(callback) is GradientAccumulationScheduler
        found.append(AccumulationSchedule(callback.scheduling) if is_plain else callback)
    return found


class Tuned(Callback):
    """Rebuild optimizer and schedule from the learning rate and batch size found, and keep the batch size.

    Lightning (2.6.6) writes a found learning rate into the optimizer, where the next step of most schedules undoes it,
    and leaves a schedule with the length that the run had before its batch size changed.

    Args:
        finders: The run's LearningRateFinder and BatchSizeFinder.
        resumed: Whether the run continues from a checkpoint, which has what they found.
    """

    def __init__(self, finders: list[Callback], resumed: bool) -> None:
        self._awaited = resumed
        # Lightning keeps the name of the attribute to itself.
        self._names = [finder._batch_arg_name for finder in finders if isinstance(finder, BatchSizeFinder)]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Rebuild them: Lightning puts the finders first, so they are done."""
        trainer.strategy.setup_optimizers(trainer)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the batch size; the learning rate is in the optimizer's state."""
        checkpoint[KEY] = {name: lightning_getattr(pl_module, name) for name in self._names}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take the batch size, before the training data is loaded; a finder restores its own checkpoint later."""
        if self._awaited:
            self._awaited = False
            for name, value in checkpoint.get(KEY, {}).items():
                lightning_setattr(pl_module, name, value)


class Unfrozen(Callback):
    """Train again, in a run that is resumed, what a finetuning callback had unfrozen.

    Lightning (2.6.6) restores the optimizer's groups of parameters but leaves the parameters frozen.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Unfreeze all that the optimizer has."""
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.requires_grad_(True)
