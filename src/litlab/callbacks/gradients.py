"""What callbacks that look at gradients before the optimizer's step need of a run."""

from lightning.pytorch import Trainer

from litlab.errors import UserError
from litlab.parallel.groups import shards


def check_gradients(trainer: Trainer, section: str) -> None:
    """Refuse a run whose gradients are not whole, or not unscaled, when ``on_before_optimizer_step`` is called.

    Args:
        trainer: It has its optimizers already, as in ``on_fit_start``.
        section: The section of the callback in a config.

    Raises:
        UserError: If it is such a run.
    """
    if shards(trainer.strategy):
        raise UserError(
            f"{section}: trainer.strategy {type(trainer.strategy).__name__} gives each process a part of the "
            f"gradients, and all of them are needed; use ddp or one device, or set {section} to null"
        )
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    if scaler is not None and any(optimizer.defaults.get("fused") for optimizer in trainer.optimizers):
        raise UserError(
            f"{section}: with trainer.precision {trainer.precision} a fused optimizer unscales the gradients itself, "
            f"after they are needed; set model.optimizer.fused to null, or {section} to null"
        )
