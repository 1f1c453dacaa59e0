"""Losses and gradients that are not finite reach neither the weights nor a checkpoint."""

import math
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.optim import Optimizer

from litlab.errors import UserError
from litlab.parallel.foreach import copy_all, local_part, norms_of

IN_A_ROW = 50  # bad steps that stop the run even under `skip`
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


class NaNGuard(Callback):
    """Keep a NaN or infinite loss or gradient from weights, optimizer and checkpoints: stop, or skip the step.

    A step is bad if its loss or the norm of its whole gradient, before clipping, is not finite. On the CPU it is found
    before the optimizer's step. On a device nothing waits to find out: the device itself sets the gradients to zero,
    a fused optimizer is told to do nothing, and the outcome is read every ``trainer.log_every_n_steps`` steps, before
    each validation and before each checkpoint.

    ``skip`` leaves weights, optimizer state and the network's buffers (statistics of batch normalisation) as they were
    before the step. Only an optimizer on a device that is not fused sees gradients of zero instead, so that momentum
    and weight decay act. The number of skipped steps is logged as ``train/skipped_steps``; 50 in a row stop the run.

    With ``16-mixed``, infinite gradients are how the scaler finds its scale, and it skips these steps: only a loss that
    is not finite counts, or 50 such gradients in a row. An optimizer that evaluates its closure several times (LBFGS)
    would continue with the bad loss: use ``stop``.

    Args:
        action: What to do at a bad step: stop the run and name the step, or skip the step.

    Raises:
        UserError: For another action; in training, for a bad step under ``stop``.
    """

    def __init__(self, action: Literal["stop", "skip"] = "stop") -> None:
        if action not in ("stop", "skip"):
            raise UserError(f"nan_guard.action: {action!r} is unknown; choose stop or skip")
        self.action = action
        self.skipped = 0  # in the whole run
        self._in_a_row = 0
        self._stopped: UserError | None = None
        self._loss: Tensor | None = None  # sum over the batches of the step
        self._unread: list[tuple[tuple[Any, ...], Tensor]] = []  # of each step: where it is, its loss and norm
        self._buffers: list[Tensor] = []
        self._good_buffers: list[Tensor] = []  # copies of before the step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note where the gradients are and who reduces them."""
        self._scaler = getattr(trainer.precision_plugin, "scaler", None) is not None
        self._waits = trainer.strategy.root_device.type == "cpu" and not self._scaler
        self._every = trainer.log_every_n_steps or IN_A_ROW  # pyright: ignore[reportAttributeAccessIssue]
        self._sharded = trainer.world_size > 1 and not isinstance(trainer.strategy, DDPStrategy)
        if self.action == "skip":
            self._buffers = [buffer for buffer in pl_module.buffers() if buffer.is_floating_point()]
            self._good_buffers = [buffer.clone() for buffer in self._buffers]

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Note the loss."""
        noted = loss.detach()
        self._loss = noted if self._loss is None else self._loss + noted
        if (self._scaler or trainer.world_size > 1) and loss.requires_grad:
            # A bad loss makes its gradient bad: the scaler looks at nothing else, and ranks share nothing else.
            spoil = noted - noted  # 0, or NaN
            loss.register_hook(lambda gradient: gradient + spoil)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Look at loss and gradient, and make a bad step harmless."""
        loss, self._loss = self._loss, None
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if loss is None or not (parameters or self._sharded):
            return
        gradients = [local_part(p.grad) for p in parameters]
        norm = norm_of_all(gradients).to(trainer.strategy.root_device)  # where processes communicate
        if self._sharded:
            torch.distributed.all_reduce(norm)
        if self._waits:
            good = self._judge(_place(trainer, optimizer), loss.item(), norm.item())
            if not good:
                for parameter in parameters:
                    parameter.grad = None  # which optimizers pass over
        else:
            pair = torch.stack([loss.to(norm), norm])
            if len(self._unread) >= self._every:
                self._read(trainer)
            self._unread.append((_place(trainer, optimizer), pair))
            good = pair.isfinite().all()
            if not self._scaler:  # which looks at the gradients itself
                zero_unless(good.to(gradients[0].device) if gradients else good, gradients)
                if optimizer.defaults.get("fused"):
                    optimizer.found_inf = (~good).float()  # pyright: ignore[reportAttributeAccessIssue]
        if self._buffers:
            pairs = zip(self._buffers, self._good_buffers, strict=True)
            good = torch.as_tensor(good, device=norm.device)
            copy_all(self._buffers, [torch.where(good, buffer, before) for buffer, before in pairs])
            copy_all(self._good_buffers, self._buffers)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read what happened."""
        self._read(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read what happened, and log the number of skipped steps."""
        self._read(trainer)
        if self.action == "skip":  # the number is the same on all ranks
            several = trainer.world_size > 1
            pl_module.log("train/skipped_steps", float(self.skipped), sync_dist=several, reduce_fx="max")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Read what happened, and refuse to save after a bad step, or weights that are not finite."""
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
        if not trainer.strategy.reduce_boolean_decision(math.isfinite(norm_of_all(weights).item())):
            raise UserError(
                f"nan_guard: the weights are not finite after {trainer.global_step} steps, though every gradient was, "
                "and no checkpoint is written (earlier ones are intact); lower model.optimizer.lr"
            )

    def _read(self, trainer: Trainer) -> None:
        """Wait for the device, and judge the steps since it was last read."""
        unread, self._unread = self._unread, []
        if not unread:
            return
        values = torch.stack([pair for _, pair in unread], dim=1)  # (loss and norm, step)
        if self._scaler and trainer.world_size > 1:
            torch.distributed.all_reduce(values[0])  # the loss alone counts, and each rank has its own
        for (place, _), loss, norm in zip(unread, *values.tolist(), strict=True):
            self._judge(place, loss, norm)

    def _judge(self, place: tuple[Any, ...], loss: float, norm: float) -> bool:
        """Return whether a step is good; count a bad one, or stop the run."""
        if math.isfinite(loss) and math.isfinite(norm):
            self._in_a_row = 0
            return True
        self._in_a_row += 1
        what = f"the gradient is {norm}" if math.isfinite(loss) else f"the loss is {loss}"
        step = "at step {} (epoch {}, batch {}, learning rate {:.3g})".format(*place)
        remedy = "lower model.optimizer.lr, set trainer.gradient_clip_val, or look at the data of this batch"
        if self._in_a_row >= IN_A_ROW:
            self._stopped = UserError(f"nan_guard: {what} {step}, the {IN_A_ROW}th bad step in a row; {remedy}")
        elif self._scaler and math.isfinite(loss):
            return False
        elif self.action == "stop":
            self._stopped = UserError(
                f"nan_guard: {what} {step}, and has not reached the weights or a checkpoint; {remedy}; "
                "or set nan_guard.action: skip"
            )
        if self._stopped is not None:
            raise self._stopped
        self.skipped += 1
        rank_zero_info(f"nan_guard: {what} {step}: the step is skipped ({self.skipped} so far in this run)")
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return the number of skipped steps."""
        return {"skipped": self.skipped} if self.skipped else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue to count from there."""
        self.skipped = state_dict["skipped"]


def _place(trainer: Trainer, optimizer: Optimizer) -> tuple[Any, ...]:
    """Return step, epoch and batch, counted from 0 as in the logs, and the learning rate."""
    rate = float(optimizer.param_groups[0]["lr"])
    return trainer.global_step, trainer.current_epoch, trainer.fit_loop.batch_idx, rate


def norm_of_all(tensors: list[Tensor]) -> Tensor:
    """Return the L2 norm over all elements of all tensors, shape ().

    ``torch.nn.utils.get_total_norm`` takes more time (36 in place of 14 µs for 4 small tensors).
    """
    return torch.linalg.vector_norm(norms_of(tensors)) if tensors else torch.tensor(0.0)


def zero_unless(good: Tensor, tensors: list[Tensor]) -> None:
    """Set tensors to zero in place where the flag of shape () is false, without reading it.

    As numbers NaN times 0 is NaN; as integers of the same bits it is 0.
    """
    for size, integer in INTEGERS.items():
        if bits := [tensor.view(integer) for tensor in tensors if tensor.element_size() == size]:
            torch._foreach_mul_(bits, good.to(integer))  # pyright: ignore[reportPrivateImportUsage]
