"""The optimizer's step inside the backward pass, for which Lightning has no hook."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from litlab.errors import UserError

WITH_GRADIENTS = ("on_after_backward", "on_before_optimizer_step")  # hooks that find all gradients


class OptimizerInBackward(Callback):
    """Update each parameter as soon as its gradient is complete, and free the gradient at once.

    Then only the gradients of the layer that the backward pass is in exist at any time, instead of those of the whole
    model: it saves about as much memory as the weights take. Weights and optimizer state are the same as without it,
    bit by bit where the optimizer treats every parameter by itself, as those of torch do; so checkpoints of both kinds
    can be continued either way. See https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html,
    which makes one optimizer per parameter. Here there is one as always, which sees one parameter at a time, so that
    schedules, parameter groups and checkpoints need nothing special. Lightning's own step follows, and finds no
    gradient.

    Whatever needs all gradients at once is refused: accumulation, clipping, gradient scaling, several processes,
    `NaNGuard`, and callbacks or models that look at the gradients after the backward pass. (A callback that has such a
    hook for another purpose says so by an attribute, ``reads_gradients = False``.) In a compiled network all gradients
    of a compiled module exist at once: compile its blocks (``compile.children``).

    Raises:
        UserError: At the start of a fit, for a setting that it can't work with.
    """

    part_of_step = True

    def __init__(self) -> None:
        self._hooks: list[RemovableHandle] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        conflict = _find_conflict(trainer, pl_module) if stage == "fit" else None
        if conflict is not None:
            raise UserError(
                f"trainer.callbacks: OptimizerInBackward frees each gradient at once, but {conflict}, or leave "
                "OptimizerInBackward out"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the parameters that are trained call the optimizer; a resumed run may start in the middle of an epoch."""
        self._remove_hooks()
        optimizer = trainer.optimizers[0]
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    hook = parameter.register_post_accumulate_grad_hook(_Step(optimizer, group))
                    self._hooks.append(hook)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do the same again: some parameters may just have been unfrozen."""
        self.on_train_start(trainer, pl_module)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._remove_hooks()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._remove_hooks()  # which would step the optimizer of this fit in the next one

    def _remove_hooks(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


class _Step:
    """Steps the optimizer for one parameter, whose gradient is complete.

    Args:
        optimizer: The optimizer.
        group: The group of it that the parameter is in.
    """

    def __init__(self, optimizer: Optimizer, group: dict[str, Any]) -> None:
        self.optimizer, self.group = optimizer, group

    def __call__(self, parameter: Tensor) -> None:
        optimizer, group = self.optimizer, self.group
        groups, before = optimizer.param_groups, dict(group)
        optimizer.param_groups, group["params"] = [group], [parameter]
        try:
            optimizer.step()
        finally:
            optimizer.param_groups, group["params"] = groups, before["params"]
        parameter.grad = None
        if any(group[name] != before.get(name) for name in group if name != "params"):  # only a schedule may
            raise UserError(
                f"trainer.callbacks: OptimizerInBackward updates one parameter at a time, but model.optimizer: "
                f"{type(optimizer).__name__} counts its steps over all of them; choose another optimizer, or leave the "
                "callback out"
            )


def _find_conflict(trainer: Trainer, module: LightningModule) -> str | None:
    """Return a setting that needs all gradients at once, and what to do about it."""
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        name = type(trainer.strategy).__name__
        return f"trainer.strategy: {name} shares gradients between processes; set trainer.devices to 1"
    if trainer.accumulate_grad_batches > 1:
        return f"trainer.accumulate_grad_batches: {trainer.accumulate_grad_batches} adds gradients up; set it to 1"
    if trainer.gradient_clip_val:
        return f"trainer.gradient_clip_val: {trainer.gradient_clip_val} needs all gradients at once; set it to null"
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        return f"trainer.precision: {trainer.precision} scales gradients; use bf16-mixed or 32-true"

    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        is_hooked = any(is_overridden(name, callback) for name in WITH_GRADIENTS)
        reads = is_hooked and getattr(callback, "reads_gradients", True)
        if reads or isinstance(callback, GradientAccumulationScheduler):
            name = type(callback).__name__
            return f"trainer.callbacks: {name} needs all gradients at once; leave it out, or set its section to null"

    # litlab's own clipping does nothing without trainer.gradient_clip_val.
    hooks = [name for name in (*WITH_GRADIENTS, "configure_gradient_clipping") if is_overridden(name, module)]
    is_own = any(not getattr(type(module), name).__module__.startswith("litlab.") for name in hooks)
    if is_own or not module.automatic_optimization:
        return f"model: {type(module).__name__} has its own way with gradients or optimizers; choose another one"
    return None
