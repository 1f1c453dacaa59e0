"""Losses and gradients that are not finite: they reach neither the weights nor a checkpoint."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.optim import Optimizer

from litlab.callbacks._gradients import copy_all, local_part, zero_unless
from litlab.errors import UserError

IN_A_ROW = 50  # steps that are skipped without an end: nothing is learned any more


@dataclass
class Step:
    """An optimizer step as a person finds it again: all counted from 0, as in the logs."""

    step: int
    epoch: int
    batch: int
    learning_rate: float

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch}, batch {self.batch}, learning rate {self.learning_rate:.3g})"


class NaNGuard(Callback):
    """Keep a NaN or infinite loss or gradient from weights, optimizer and checkpoints: stop, or skip the step.

    Looked at is the norm of the whole gradient, before it is clipped, so that one that overflows counts too. Where
    there are several ranks or the numbers lie on a device, a loss that is not finite is first made to spoil its
    gradient: ranks then see the same, as gradients are reduced and losses are not, and nothing more is communicated.
    (Only strategies that shard gradients reduce one number per step.)

    On the CPU a bad step is known before it is made. On a device nobody waits to know: there gradients are set to zero
    by the device itself, or a fused optimizer is told to do nothing, and what happened is read at
    ``trainer.log_every_n_steps``, before each validation and before each checkpoint.

    ``skip`` leaves the optimizer untouched: weights, momentum and step counts stay as they were; the buffers of the
    network (statistics of batch normalisation) return to what they were before the step. Only optimizers on a device
    that are not fused see a zero gradient instead, so that momentum and weight decay act. Skipped steps are logged as
    ``train/skipped_steps``; 50 of them in a row stop the run.

    With ``16-mixed`` infinite gradients are how the scaler finds its scale: it skips these steps, and only a loss that
    is not finite counts, or 50 such gradients in a row. An optimizer that evaluates its closure several times (LBFGS)
    would go on with the bad loss: take ``stop``.

    Args:
        action: What to do: stop the run with the step named, or skip the step and go on.

    Raises:
        UserError: For another action; in training, for a bad step under ``stop``.
    """

    def __init__(self, action: Literal["stop", "skip"] = "stop") -> None:
        if action not in ("stop", "skip"):
            raise UserError(f"nan_guard.action is {action}: it must be stop or skip.")
        self.action = action
        self.skipped = 0  # steps of the whole run
        self._in_a_row = 0
        self._stopped: UserError | None = None
        self._loss: Tensor | None = None  # sum over the batches of the step
        self._deferred = False  # whether what happened is read later
        self._spoils = False
        self._scaler = False
        self._sharded = False
        self._norm_dtype: torch.dtype | None = None
        self._unread: list[Step] = []
        self._values: Tensor | None = None  # (2, steps): losses and norms of the unread steps
        self._buffers: list[Tensor] = []
        self._good_buffers: list[Tensor] = []  # the same before the step

    # Training

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find out where the gradients lie and who reduces them."""
        device = trainer.strategy.root_device
        self._scaler = getattr(trainer.precision_plugin, "scaler", None) is not None
        self._deferred = device.type != "cpu" or self._scaler
        self._spoils = self._deferred or trainer.world_size > 1
        self._sharded = trainer.world_size > 1 and not isinstance(trainer.strategy, DDPStrategy)
        half = any(p.dtype in (torch.float16, torch.bfloat16) for p in pl_module.parameters())
        self._norm_dtype = torch.float32 if half else None  # the norm overflows sooner than its gradient does
        if self._deferred:
            self._values = torch.zeros(2, max(trainer.log_every_n_steps, IN_A_ROW), device=device)  # pyright: ignore[reportAttributeAccessIssue]
        if self.action == "skip":
            self._buffers = [buffer for buffer in pl_module.buffers() if buffer.is_floating_point()]
            self._good_buffers = [buffer.clone() for buffer in self._buffers]

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Note the loss; let one that is not finite spoil its gradient."""
        noted = loss.detach()
        if self._spoils and loss.requires_grad:
            spoil = noted - noted  # 0, or NaN
            loss.register_hook(lambda gradient: gradient + spoil)
        self._loss = noted if self._loss is None else self._loss + noted
        if self._unread and trainer.fit_loop.epoch_loop.batch_progress.total.ready % self._every(trainer) == 0:
            self._read(trainer)  # here, as the module has just waited for the device to log its loss

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Look at the gradient, and make a bad step harmless."""
        loss, self._loss = self._loss, None
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not parameters or loss is None:
            return
        gradients = [local_part(p.grad) for p in parameters]
        norms = torch._foreach_norm(gradients, 2, self._norm_dtype)  # pyright: ignore[reportPrivateImportUsage]
        if self._deferred or self._sharded:
            total = torch.stack(norms).sum()
            if self._sharded:
                torch.distributed.all_reduce(total)
            if self._deferred:
                self._defer(trainer, optimizer, gradients, loss, total)
                return
            norm = total.item()
        else:
            norm = sum(norm.item() for norm in norms)
        if math.isfinite(norm) and math.isfinite(loss.item()):
            self._in_a_row = 0
            copy_all(self._good_buffers, self._buffers)
        else:
            self._judge(_step(trainer, optimizer), loss.item(), norm)
            for parameter in parameters:
                parameter.grad = None  # which optimizers pass over
            copy_all(self._buffers, self._good_buffers)

    def _defer(
        self, trainer: Trainer, optimizer: Optimizer, gradients: list[Tensor], loss: Tensor, norm: Tensor
    ) -> None:
        """Makes a bad step harmless without knowing whether it is one."""
        assert self._values is not None
        if len(self._unread) == self._values.shape[1]:
            self._read(trainer)
        self._values[0, len(self._unread)] = loss
        self._values[1, len(self._unread)] = norm
        self._unread.append(_step(trainer, optimizer))
        good = norm < torch.inf  # False for NaN
        if self._scaler:
            pass  # it has looked at the gradients itself and skips the step
        elif getattr(optimizer, "_step_supports_amp_scaling", False):  # fused
            optimizer.found_inf = (~good).float()  # pyright: ignore[reportAttributeAccessIssue]
        else:
            zero_unless(good, gradients)
        if self._buffers:
            bad_ones, good_ones = [b.clone() for b in self._buffers], [b.clone() for b in self._good_buffers]
            zero_unless(good, bad_ones)
            zero_unless(~good, good_ones)
            copy_all(self._buffers, bad_ones)
            torch._foreach_add_(self._buffers, good_ones)  # pyright: ignore[reportPrivateImportUsage]
            copy_all(self._good_buffers, self._buffers)

    # Reading what happened

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read what happened."""
        self._read(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read what happened and log the number of skipped steps."""
        self._read(trainer)
        if self.action == "skip":
            several = trainer.world_size > 1  # who have the same number
            pl_module.log("train/skipped_steps", float(self.skipped), sync_dist=several, reduce_fx="max")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Read what happened, and refuse to write after a bad step or weights that are not finite."""
        self._read(trainer)
        if self._stopped is not None:
            raise self._stopped
        names = {name for name, _ in pl_module.named_parameters()}
        weights = [
            local_part(tensor)
            for state in ("state_dict", "current_model_state")  # with EMA: the average, the weights in training
            for name, tensor in checkpoint.get(state, {}).items()
            if name in names and tensor.is_floating_point()
        ]
        norms = torch._foreach_norm(weights, 2, self._norm_dtype)  # pyright: ignore[reportPrivateImportUsage]
        finite = not norms or math.isfinite(torch.stack(norms).sum().item())
        if not trainer.strategy.reduce_boolean_decision(finite):
            raise UserError(
                f"The weights are not finite after {trainer.global_step} steps, though every gradient was: the "
                "optimizer made them so. No checkpoint is written; earlier ones are intact. Lower model.optimizer.lr."
            )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read what happened."""
        self._read(trainer)

    def _read(self, trainer: Trainer) -> None:
        """Waits for the device, and judges the steps since it was last read."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        assert self._values is not None
        values = self._values[:, : len(unread)]
        if self._scaler and trainer.world_size > 1:  # the loss alone counts, and ranks have each their own
            torch.distributed.all_reduce(values[0])
        for step, loss, norm in zip(unread, *values.tolist(), strict=True):
            self._judge(step, loss, norm)

    def _judge(self, step: Step, loss: float, norm: float) -> None:
        """Counts a step that is not good, or stops the run."""
        if math.isfinite(loss) and math.isfinite(norm):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        what = f"the gradient is {norm}" if math.isfinite(loss) else f"the loss is {loss}"
        if self._in_a_row >= IN_A_ROW:
            self._stop(f"{step}: {what}, for the {IN_A_ROW}th step in a row: nothing is learned any more.")
        if self._scaler and math.isfinite(loss):
            return
        if self.action == "stop":
            self._stop(
                f"{step}: {what}. It has not reached the weights or a checkpoint. Lower model.optimizer.lr, set "
                "trainer.gradient_clip_val, look at the data of this batch, or set nan_guard.action: skip."
            )
        self.skipped += 1
        rank_zero_info(f"{step}: {what}. The step is skipped ({self.skipped} so far in this run).")

    def _stop(self, message: str) -> None:
        self._stopped = UserError(message)
        raise self._stopped

    def _every(self, trainer: Trainer) -> int:
        return trainer.log_every_n_steps or IN_A_ROW  # pyright: ignore[reportAttributeAccessIssue]

    # The count of a resumed run

    def state_dict(self) -> dict[str, Any]:
        """The number of skipped steps."""
        return {"skipped": self.skipped} if self.skipped else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on counting."""
        self.skipped = state_dict["skipped"]


def _step(trainer: Trainer, optimizer: Optimizer) -> Step:
    rate = float(optimizer.param_groups[0]["lr"])
    return Step(trainer.global_step, trainer.current_epoch, trainer.fit_loop.batch_idx, rate)
