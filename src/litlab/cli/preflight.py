"""What is said before the first batch of a fit: settings that have no effect, or would end it
later.

A mistake that makes the run useless is a `UserError`; where training can sensibly go on, it is a
warning.
"""

import inspect
import math
from types import CodeType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from litlab.errors import UserError
from litlab.util.metrics import check_monitor, choose_mode
from litlab.util.steps import epochs_of_run

# Every model inherits the methods of these, so they tell nothing about its settings.
FRAMEWORKS = ("lightning", "torch")
ENTRIES = ("training_step", "forward", "configure_optimizers")  # what a fit calls of a model


class Preflight(Callback):
    """Compare the settings of a fit with its data, as soon as both are known.

    Args:
        run: The Trainer whose settings count, where another one tries some steps; None: the one
            that trains.

    Raises:
        UserError: If nothing would be trained, or something watches a metric that will not be
            logged, or would keep its worst value.
    """

    def __init__(self, run: Trainer | None = None) -> None:
        self.run = run

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        for name in ("limit_train_batches", "max_epochs", "max_steps"):
            if stage == "fit" and getattr(trainer, name) == 0:
                raise UserError(
                    f"trainer.{name}: with 0 nothing is trained; set it higher, or leave it out"
                )
        for callback in list_watchers(self.run or trainer):
            if stage == "fit" and callback.monitor is not None:
                key = f"{callback.section}.mode"
                choose_mode(key, callback.configured_mode, callback.monitor, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Before the callbacks themselves look for it, as this one is the first of all
        for callback in list_watchers(self.run or trainer):
            check_monitor(f"{callback.section}.monitor", callback.monitor, trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Lightning steps at the end of an epoch, but divides the loss as if all batches had come
        run, batches = self.run or trainer, trainer.num_training_batches
        size = trainer.accumulate_grad_batches
        if size > batches:
            rank_zero_info(
                f"warning: trainer.accumulate_grad_batches: an epoch has {batches} batches, "
                f"so that each gradient is {batches}/{size} of their mean; set {batches} at most"
            )

        # What waits for a validation that never comes. Metrics of the training are always there
        first, reason = find_first_validation(run, trainer)
        callbacks: list[Any] = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        monitors = {str(getattr(callback, "monitor", "")) for callback in callbacks}
        monitors = sorted(monitor for monitor in monitors if monitor.startswith("val"))
        if monitors and math.isinf(first):
            rank_zero_info(
                f"warning: there will be no validation, as {reason}: {', '.join(monitors)} chooses "
                "no checkpoint and ends nothing, and the last weights are tested"
            )

        # Lightning ends the fit where ReduceLROnPlateau is due and its metric was not logged yet
        for config in trainer.lr_scheduler_configs:
            epochs = config.frequency / (1 if config.interval == "epoch" else batches)
            if (
                config.reduce_on_plateau
                and str(config.monitor).startswith("val")
                and epochs < first
            ):
                raise UserError(
                    f"model.schedule: ReduceLROnPlateau wants {config.monitor} after every "
                    f"{config.frequency} {config.interval}, but {reason}; set interval: epoch, and "
                    "frequency to the epochs between validations, or choose another scheduler"
                )


def list_watchers(run: Trainer) -> list[Any]:
    """List the callbacks that watch a metric: those of checkpoints and early stopping."""
    callbacks: list[Any] = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    return [callback for callback in callbacks if hasattr(callback, "configured_mode")]


def find_first_validation(run: Trainer, trainer: Trainer) -> tuple[float, str]:
    """Return after how many epochs a fit first validates, inf if it never does, and why so late.

    Args:
        run: The Trainer with the settings.
        trainer: The Trainer that has the data.

    Raises:
        UserError: If the settings exclude each other.
    """
    # check_val_every_n_epoch: null counts the batches of all epochs. val_check_interval: an int
    # counts batches, a float is a share of the epoch
    batches, every = trainer.num_training_batches, run.check_val_every_n_epoch
    interval = getattr(run, "val_check_interval", 0)  # missing where it is a time
    if isinstance(interval, int) and every is not None and interval > batches:
        raise UserError(
            f"trainer.val_check_interval: {interval} is above the batches of an epoch, {batches}; "
            "set it lower, or trainer.check_val_every_n_epoch to null to count those of all "
            "epochs"
        )

    # Never: by a setting, or as there is nothing to validate with
    if run.limit_val_batches == 0:
        return math.inf, "trainer.limit_val_batches is 0"
    is_empty = trainer.val_dataloaders is not None and not sum(trainer.num_val_batches)
    if is_empty or not trainer.enable_validation:
        return math.inf, "the data has no validation split, or the model no validation_step"

    # With every third epoch, two pass first; then the interval within the third one
    first = (every or 1) - 1 + (interval / batches if isinstance(interval, int) else interval)
    end = epochs_of_run(trainer)
    reason = f"the first validation is due at epoch {first:.3g}, and the run ends at {end:.3g}"
    return first if first <= end else math.inf, reason


def refuse_unused_settings(model: LightningModule) -> None:
    """Refuse a setting that has no effect: a base class reads it, but the model, which takes it in
    ``**settings``, has other methods in place of those that do.

    An example is label_smoothing of a model with a loss of its own. Which settings a fit reads is
    told by the names in the code of the methods that it calls, and of the methods that these name.
    A setting that a subclass takes by its name, or names in any of its methods, is not checked.

    Raises:
        UserError: If such a setting is not at its default.
    """
    kind = type(model)
    for name, value in model.hparams.items():
        # The nearest class that takes the setting by its name; that of the model itself may do as
        # it likes, and so may a setting that the data has filled in
        owner = next((cls for cls in kind.__mro__ if name in _read_parameters(cls)), kind)
        default = _read_parameters(owner)[name].default if owner is not kind else value
        if (
            value == default
            or default is inspect.Parameter.empty
            or name in getattr(model, "data_facts", ())
        ):
            continue

        # Unused: the owner's methods name it, but none that the model has in their place
        below = kind.__mro__[: kind.__mro__.index(owner)]
        overrides = [_read_names(method) for cls in below for method in vars(cls).values()]
        if name in find_names(owner).difference(find_names(kind), *overrides):
            raise UserError(
                f"model.{name}: {kind.__name__} does not use it, as its own methods take the place "
                f"of those of {owner.__name__} that do; set it to "
                f"{'null' if default is None else default}"
            )


def find_names(cls: type) -> set[str]:
    """Return the names in the methods of a class that a fit calls, and in those that these name."""
    found: set[str] = set()
    waiting = [*ENTRIES]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for base in cls.__mro__:  # from the class to those that it inherits from
            if name in vars(base) and base.__module__.partition(".")[0] not in FRAMEWORKS:
                names = _read_names(vars(base)[name])
                waiting += names
                if name not in names:  # it does not call the one that it takes the place of
                    break
    return found


def _read_names(method: Any) -> set[str]:
    # A property has its function in fget; a decorator may have wrapped it
    code = getattr(inspect.unwrap(getattr(method, "fget", method)), "__code__", None)
    return set() if code is None else _list_names(code)


def _list_names(code: CodeType) -> set[str]:
    # As in self.hparams["width"]
    texts = {text for text in code.co_consts if isinstance(text, str)}
    return texts.union(
        code.co_names,
        *(_list_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)),
    )


def _read_parameters(cls: type) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls.__init__).parameters) if "__init__" in vars(cls) else {}
