"""The optimizer's step inside the backward pass."""

from collections.abc import Iterator
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.optim import LBFGS, Optimizer
from torch.utils.hooks import RemovableHandle

from litlab.errors import UserError

# Hooks that are called when all gradients are there.
WITH_GRADIENTS = ("on_after_backward", "on_before_optimizer_step")

# Callbacks that have these hooks, and their sections of the config.
SECTIONS = {"NaNGuard": "nan_guard", "AGC": "agc", "GradNorms": "grad_norms"}


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
        """Refuse what can't be combined."""
        if stage == "fit":
            for problem in _problems(trainer, pl_module):
                raise UserError(f"trainer.callbacks: OptimizerInBackward frees each gradient at once, but {problem}")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the parameters that are trained call the optimizer; a resumed run may start in the middle of an epoch."""
        optimizer = trainer.optimizers[0]
        if isinstance(optimizer, LBFGS):
            raise UserError(
                "trainer.callbacks: OptimizerInBackward updates one parameter at a time, but model.optimizer: LBFGS "
                "needs all of them; choose another optimizer, or leave the callback out"
            )
        self._remove()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    hook = _Step(optimizer, group)
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do the same again: some parameters may just have been unfrozen."""
        self.on_train_start(trainer, pl_module)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the parameters as they were found."""
        self._remove()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Do so after a fit that failed, too: the hooks would step its optimizer in the next one."""
        self._remove()

    def _remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()


class _Step:
    """What is called when the gradient of a parameter is complete.

    Args:
        optimizer: The optimizer.
        group: The group of it that the parameter is in.
    """

    def __init__(self, optimizer: Optimizer, group: dict[str, Any]) -> None:
        self.optimizer = optimizer
        self.group = group

    def __call__(self, parameter: Tensor) -> None:
        optimizer, groups, parameters = self.optimizer, self.optimizer.param_groups, self.group["params"]
        before = self.settings()
        optimizer.param_groups, self.group["params"] = [self.group], [parameter]
        try:
            optimizer.step()
        finally:
            optimizer.param_groups, self.group["params"] = groups, parameters
        parameter.grad = None
        if self.settings() != before:
            raise UserError(
                f"trainer.callbacks: OptimizerInBackward updates one parameter at a time, but model.optimizer: "
                f"{type(optimizer).__name__} counts its steps over all of them; choose another optimizer, or leave the "
                "callback out"
            )

    def settings(self) -> dict[str, Any]:
        """Return what the group has besides its parameters; only a schedule may change it."""
        return {name: value for name, value in self.group.items() if name != "params"}


def _problems(trainer: Trainer, module: LightningModule) -> Iterator[str]:
    """Yield each setting that needs all gradients at once, and what to do about it."""
    remedy = "or leave OptimizerInBackward out"
    if not isinstance(trainer.strategy, SingleDeviceStrategy):
        name = type(trainer.strategy).__name__
        yield f"trainer.strategy: {name} shares gradients between processes; set trainer.devices to 1, {remedy}"
    if (batches := trainer.accumulate_grad_batches) > 1:
        yield f"trainer.accumulate_grad_batches: {batches} adds gradients up; set it to 1, {remedy}"
    if trainer.gradient_clip_val:
        yield (
            f"trainer.gradient_clip_val: {trainer.gradient_clip_val} needs all gradients at once; set it to null, "
            f"{remedy}"
        )
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        yield f"trainer.precision: {trainer.precision} scales gradients; use bf16-mixed or 32-true, {remedy}"
    if not module.automatic_optimization:
        yield f"model: {type(module).__name__} steps its optimizers itself; leave the callback out"
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, GradientAccumulationScheduler):
            yield "trainer.callbacks: GradientAccumulationScheduler adds gradients up; leave one of the two out"
        hooked = any(getattr(type(callback), name) is not getattr(Callback, name) for name in WITH_GRADIENTS)
        if hooked and getattr(callback, "reads_gradients", True):
            name = type(callback).__name__
            key = SECTIONS.get(name, "trainer.callbacks")
            one = f"set {key} to null" if name in SECTIONS else f"leave {name} out"
            yield f"{key}: {name} looks at all gradients before a step; {one}, {remedy}"
    for name in (*WITH_GRADIENTS, "configure_gradient_clipping"):
        # litlab's own clipping does nothing without trainer.gradient_clip_val.
        if is_overridden(name, module) and not getattr(type(module), name).__module__.startswith("litlab."):
            yield f"model: {type(module).__name__}.{name} needs all gradients at once; leave the callback out"
