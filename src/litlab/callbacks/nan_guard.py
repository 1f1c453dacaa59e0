"""Losses and gradients that are not finite stop the run, and reach no checkpoint.

Lightning has ``detect_anomaly``, which makes every step several times slower, and no guard of
checkpoints.
"""

import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from litlab.errors import UserError
from litlab.util.ranks import divides_model
from litlab.util.tensors import compute_norm, get_local

IN_A_ROW = 50  # bad steps that stop the run in any case


class NaNGuard(Callback):
    """Stop at a NaN or infinite loss or gradient, before a checkpoint gets the damaged weights.

    A step is bad if its loss or the norm of its whole gradient, before clipping, is not finite. On
    the CPU, it is found before the optimizer's step. On other devices, nothing waits for it: the
    outcome is read every ``trainer.log_every_n_steps`` steps and before each checkpoint.

    With ``16-mixed``, the scaler finds its scale by infinite gradients, and skips these steps and
    those with a bad loss: only 50 in a row count.

    Raises:
        UserError: In training, for a bad step; when saving, for weights that are not finite.
    """

    def __init__(self) -> None:
        self._in_a_row = 0  # bad steps
        self._loss: Tensor | None = None  # sum over the batches of the step
        # Of each step: where it is, its loss, and the norms of its gradients
        self._unread: list[tuple[Any, Tensor, Tensor]] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._scales = getattr(trainer.precision_plugin, "scaler", None) is not None
        is_cpu = trainer.strategy.root_device.type == "cpu"
        self._read_every = 1 if is_cpu else trainer.log_every_n_steps or IN_A_ROW  # pyright: ignore[reportAttributeAccessIssue]

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        noted = loss.detach().clone()  # a CUDA graph's next run overwrites its outputs
        self._loss = noted if self._loss is None else self._loss + noted
        if self._scales or trainer.world_size > 1:
            # A bad loss makes its gradient bad: the scaler looks at nothing else, and ranks share
            # nothing else.
            spoil = noted - noted  # 0, or NaN
            loss.register_hook(lambda gradient: gradient + spoil)

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        loss, self._loss = self._loss, None
        if loss is None:
            return

        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [get_local(p.grad) for p in parameters if p.grad is not None]
        norm = compute_norm(gradients)
        # A rank has a part of each gradient
        if divides_model(trainer.strategy):
            norm = norm.to(trainer.strategy.root_device)
            torch.distributed.all_reduce(norm)
        where = trainer.global_step, trainer.current_epoch, trainer.fit_loop.batch_idx
        self._unread.append((where, loss, norm))
        if len(self._unread) >= self._read_every:
            self._read_steps()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._read_steps()
        # The weights, or their average
        weights = [get_local(p.detach()) for p in pl_module.parameters()]
        is_finite = math.isfinite(compute_norm(weights).item())
        if not trainer.strategy.reduce_boolean_decision(is_finite):
            raise UserError(
                "nan_guard: the weights are not finite, so no checkpoint is written (earlier ones "
                "are intact); lower model.optimizer.lr"
            )

    def _read_steps(self) -> None:
        """Wait for the device, and judge the steps since it was last read."""
        unread, self._unread = self._unread, []
        for (step, epoch, batch), loss, norm in unread:
            loss, norm = loss.item(), norm.item()
            self._in_a_row = 0 if math.isfinite(loss + norm) else self._in_a_row + 1
            if self._in_a_row >= (IN_A_ROW if self._scales else 1):
                raise UserError(
                    f"nan_guard: the loss is {loss} and the norm of the gradient {norm} at step "
                    f"{step} (epoch {epoch}, batch {batch}); lower model.optimizer.lr, set "
                    "trainer.gradient_clip_val, or look at the data of this batch"
                )
