"""The optimizer's step inside the backward pass, for which Lightning has no hook."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim import Optimizer

from litlab.errors import UserError


class OptimizerInBackward(Callback):
    """Update each parameter as soon as its gradient is complete, and free the gradient at once.

    Then only the gradients of the layer that the backward pass is in exist at any time, instead of those of the whole
    model: it saves about as much memory as the weights take. Weights and optimizer state are the same as without it,
    bit by bit where the optimizer treats every parameter by itself, as those of torch do; so checkpoints of both kinds
    can be continued either way. See https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html,
    which makes one optimizer per parameter. Here there is one as always, which sees one parameter at a time, so that
    schedules, parameter groups and checkpoints need nothing special. Lightning's own step follows, and finds no
    gradient.

    Settings that need all gradients at once are refused: accumulation, clipping, gradient scaling, several processes,
    and callbacks with a hook after the backward pass, such as `NaNGuard`. A hook of the model finds none, and an
    optimizer that counts its steps by itself counts them for each parameter. In a compiled network all gradients of a
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
            conflicts[type(callback).__name__] = any(is_overridden(hook, callback) for hook in hooks)
        names = ", ".join(name for name, needs_all in conflicts.items() if needs_all)
        if names and stage == "fit":
            raise UserError(
                f"trainer.callbacks: OptimizerInBackward has one gradient at a time, in one process, and {names} "
                "needs more; set that to null or leave OptimizerInBackward out"
            )

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the parameters that are trained call the optimizer; some may just have been unfrozen."""
        self.remove_hooks()
        optimizer = trainer.optimizers[0]
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(_make_step(optimizer, group))
                    self._hooks.append(hook)

    on_train_start = on_train_epoch_start  # a resumed run may start in the middle of an epoch

    def remove_hooks(self, *_: Any, **__: Any) -> None:
        """Leave the parameters as they were: the hooks would step the optimizer of this fit in the next one."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    teardown = on_exception = remove_hooks


def _make_step(optimizer: Optimizer, group: dict[str, Any]) -> Callable[[Tensor], None]:
    """Return what steps an optimizer for one parameter of a group, whose gradient is complete."""

    def step(parameter: Tensor) -> None:
        groups, parameters = optimizer.param_groups, group["params"]
        optimizer.param_groups, group["params"] = [group], [parameter]
        optimizer.step()
        optimizer.param_groups, group["params"] = groups, parameters
        parameter.grad = None

    return step
