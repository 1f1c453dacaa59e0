"""Norms of the gradient, layer by layer."""

import math

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from litlab.callbacks.gradients import check_gradients
from litlab.parallel.foreach import local_part, norms_of


class GradNorms(Callback):
    """Log the L2 norm of each layer's gradient as ``grad_norm/<layer>``, and of all of it as ``grad_norm/total``.

    A layer is what has the parameters: its weight and bias are taken together. The gradient is that of the optimizer
    step: of all batches that are accumulated and all ranks, unscaled, and before it is clipped or checked. It is looked
    at every ``trainer.log_every_n_steps`` only, in a few kernels and one transfer; other steps do not wait for the
    device. (Lightning's ``lightning.pytorch.utilities.grad_norm`` returns one tensor per parameter, and each that is
    logged waits.)

    Raises:
        UserError: In a fit, if the gradients are sharded, or a fused optimizer is to unscale them.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse what it can't work with, and note the names."""
        check_gradients(trainer, "grad_norms")
        self._names = {id(parameter): name for name, parameter in pl_module.named_parameters()}

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Log the norms, if this is a step that is logged."""
        every = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if not trainer.loggers or not every or (trainer.global_step + 1) % every:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        squares: dict[str, float] = {}
        norms = norms_of([local_part(p.grad) for p in parameters]).tolist()
        for parameter, norm in zip(parameters, norms, strict=True):
            name = self._names[id(parameter)]
            layer = name.rpartition(".")[0] or name  # a parameter of the model itself
            squares[layer] = squares.get(layer, 0.0) + norm**2
        values = {f"grad_norm/{layer}": math.sqrt(square) for layer, square in squares.items()}
        values["grad_norm/total"] = math.sqrt(sum(squares.values()))
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
