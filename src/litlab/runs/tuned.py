"""What Lightning's finders and finetuning callbacks leave undone, in their run and when it is resumed."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import BatchSizeFinder
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_setattr

KEY = "tuned"  # in the checkpoint


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
