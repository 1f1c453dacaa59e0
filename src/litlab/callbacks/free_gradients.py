"""Gradients that are not needed any more make room for the activations of the next step."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden

OWN_WAYS = ("on_before_zero_grad", "optimizer_zero_grad")


class FreeGradients(Callback):
    """Free the gradients of a step before the forward pass of the next one.

    Lightning (2.6.6) frees them after it, so that gradients, as large as the weights, and activations exist at the same
    time. Those that are being accumulated stay. Until the next batch begins everyone can look at them. It does nothing
    where a model or callback has ``on_before_zero_grad`` or ``optimizer_zero_grad`` of its own, or where the model
    steps its optimizers itself.
    """

    def __init__(self) -> None:
        self._frees = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find out whether it may."""
        own = any(is_overridden(name, pl_module) for name in OWN_WAYS) or any(
            getattr(type(callback), OWN_WAYS[0]) is not getattr(Callback, OWN_WAYS[0])
            for callback in trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        )
        self._frees = pl_module.automatic_optimization and not own

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Free them, if this batch is the first of a step: Lightning's condition."""
        if self._frees and batch_idx % trainer.accumulate_grad_batches == 0:
            for optimizer in trainer.optimizers:
                optimizer.zero_grad()
