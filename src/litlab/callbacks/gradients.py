"""Gradients after the backward pass: clipped, logged, and used one by one.

`GradNorms` is here because Lightning's ``grad_norm`` waits for the device once for each parameter,
`AGC` as the Trainer clips by the norm of the gradient alone, and `OptimizerInBackward` as Lightning
has no hook within the backward pass.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim import Optimizer

from litlab.errors import UserError
from litlab.optim.param_groups import last_layer
from litlab.types import PositiveFloat
from litlab.util.ranks import divides_model
from litlab.util.tensors import compute_norm, get_local


class GradNorms(Callback):
    """Log the L2 norm of each parameter's gradient as ``grad_norm/<name>``, and of all of it as
    ``grad_norm/total``.

    The gradient is that of the optimizer step: over all accumulated batches and all ranks,
    unscaled, and before clipping. It is computed only every ``trainer.log_every_n_steps``, in a few
    kernels and one transfer; other steps do not wait for the device.

    Raises:
        UserError: In a fit, if the gradients are sharded, or a fused optimizer is to unscale them.
    """

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _check_gradients(trainer, "grad_norms")

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        every = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if not every or (trainer.global_step + 1) % every:
            return
        gradients = {name: p.grad for name, p in pl_module.named_parameters() if p.grad is not None}
        each = [compute_norm([get_local(gradient)]) for gradient in gradients.values()]
        norms = torch.stack(each).tolist() if each else []  # none where a step has no loss
        values = {f"grad_norm/{name}": norm for name, norm in zip(gradients, norms, strict=True)}
        values["grad_norm/total"] = math.hypot(*norms)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)


class AGC(Callback):
    """Clip the gradient of each unit of a layer to a share of the norm of the unit's weights.

    A unit is a row of a matrix, a filter, or a whole vector: what feeds one output. Its gradient g
    is scaled by factor * max(|w|, 0.001) / |g| if that is below 1 (Brock et al. 2021,
    arXiv:2102.06171, section 4.1, where it replaces batch norms in training with large batches).
    The last layer is left alone, as there. Nothing waits for the device.

    Args:
        factor: Largest norm of a unit's gradient, as a share of the norm of its weights. The paper
            uses 0.01 for batches of 4,096 and SGD; smaller batches need a larger factor.

    Raises:
        UserError: In a fit, if the gradients are sharded.
    """

    part_of_step = True

    def __init__(self, factor: PositiveFloat = 0.01) -> None:
        self.factor = factor

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _check_gradients(trainer, "agc")
        self._last = set(last_layer(pl_module))

    @torch.no_grad()
    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter not in self._last:
                    largest = self.factor * _unit_norms(parameter).clamp(min=1e-3)
                    scale = largest / _unit_norms(parameter.grad).clamp(min=1e-6)
                    parameter.grad.mul_(scale.clamp(max=1.0))


class OptimizerInBackward(Callback):
    """Update each parameter as soon as its gradient is complete, and free the gradient at once.

    At any time, only the gradients of the current layer of the backward pass exist, instead of
    those of the whole model. This saves about as much memory as the weights take. Weights and
    optimizer state are the same as without it, bit for bit if the optimizer treats each parameter
    separately, as torch's do; so a run can be resumed with or without it. See
    https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html, which
    makes one optimizer per parameter. Here there is one as always, which sees one parameter at a
    time, so that schedules, parameter groups and checkpoints need nothing special. Lightning's own
    step follows, and finds no gradient.

    Settings that need all gradients at once are refused: accumulation, clipping, gradient scaling,
    several processes, and callbacks with a hook after the backward pass, such as `NaNGuard`. A hook
    of the model finds none, and an optimizer that counts its steps by itself counts them for each
    parameter. In a compiled network all gradients of a
    compiled module exist at once: compile its blocks (``compile.children``).

    Raises:
        UserError: At the start of a fit, for a setting that it can't work with.
    """

    part_of_step = True

    def __init__(self) -> None:
        self._hooks: list[Any] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        conflicts = {
            "trainer.devices": not isinstance(trainer.strategy, SingleDeviceStrategy),
            "trainer.accumulate_grad_batches": trainer.accumulate_grad_batches > 1,
            "trainer.gradient_clip_val": bool(trainer.gradient_clip_val),
            "trainer.precision": getattr(trainer.precision_plugin, "scaler", None) is not None,
        }
        for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            hooks = ("on_after_backward", "on_before_optimizer_step")
            conflicts[type(callback).__name__] = any(
                is_overridden(hook, callback) for hook in hooks
            )
        names = ", ".join(name for name, needs_all in conflicts.items() if needs_all)
        if names and stage == "fit":
            raise UserError(
                "trainer.callbacks: OptimizerInBackward has one gradient at a time, in one "
                f"process, which does not work with {names}; leave that out (set nan_guard, agc "
                "and grad_norms to null), or OptimizerInBackward"
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the parameters that are trained call the optimizer; some may just have been
        unfrozen.
        """
        self.remove_hooks()
        optimizer = trainer.optimizers[0]
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(
                        _make_step(optimizer, group)
                    )
                    self._hooks.append(hook)

    on_train_start = on_train_epoch_start  # a resumed run may start in the middle of an epoch

    def remove_hooks(self, *_: Any, **__: Any) -> None:
        """Leave the parameters as they were: the hooks would step the optimizer of this fit in the
        next one.
        """
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    teardown = on_exception = remove_hooks


def _check_gradients(trainer: Trainer, section: str) -> None:
    """Refuse a run whose gradients are not whole, or not unscaled, before the optimizer's step."""
    if divides_model(trainer.strategy):
        raise UserError(
            f"{section}: trainer.strategy gives each process only a part of the gradients, and it "
            f"needs all of them; use ddp or one device, or set {section} to null"
        )
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    if scaler is not None and any(
        optimizer.defaults.get("fused") for optimizer in trainer.optimizers
    ):
        raise UserError(
            f"{section}: with 16-mixed, a fused optimizer unscales the gradients too late; set "
            f"model.optimizer.fused to null, or {section} to null"
        )


def _unit_norms(tensor: Tensor) -> Tensor:
    """Return the norm of each unit, in a shape that is broadcast over it: (units, 1, ...), or () of
    a vector.
    """
    dims = tuple(range(1, tensor.ndim)) or None
    return torch.linalg.vector_norm(tensor, dim=dims, keepdim=tensor.ndim > 1, dtype=torch.float32)


def _make_step(optimizer: Optimizer, group: dict[str, Any]) -> Callable[[Tensor], None]:
    """Return what steps an optimizer for one parameter of a group, whose gradient is complete."""

    def step(parameter: Tensor) -> None:
        groups, parameters = optimizer.param_groups, group["params"]
        optimizer.param_groups, group["params"] = [group], [parameter]
        optimizer.step()
        optimizer.param_groups, group["params"] = groups, parameters
        parameter.grad = None

    return step
