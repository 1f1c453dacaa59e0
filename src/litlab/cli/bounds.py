"""Bounds of settings whose own classes accept values that make no sense, such as negative counts.

Torch and Lightning check some of their arguments; the others train something else than what was asked for, or nothing.
One table by name is checked against the parsed config, before anything is built.
"""

import inspect
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.errors import UserError


@dataclass(frozen=True)
class Bound:
    """A range of numbers.

    Args:
        least: Lower end.
        most: Upper end.
        above: Whether the lower end itself is left out.
        below: Whether the upper end itself is left out.
        off: A number outside of the range that has a meaning of its own.
    """

    least: float = 0
    most: float = math.inf
    above: bool = False
    below: bool = False
    off: int | None = None

    def holds(self, value: float) -> bool:
        """Whether a number is in the range; NaN never is."""
        if self.off is not None and value == self.off:
            return True
        low = value > self.least if self.above else value >= self.least
        return low and (value < self.most if self.below else value <= self.most)

    def __str__(self) -> str:
        text = f"above {self.least}" if self.above else f"{self.least} or more"
        if self.most < math.inf:
            low = text if self.above else f"at least {self.least}"
            text = f"{low} and {f'below {self.most}' if self.below else f'at most {self.most}'}"
        return text if self.off is None else f"{text}, or {self.off}"


NOT_NEGATIVE, COUNT, POSITIVE = Bound(0), Bound(1), Bound(0, above=True)
SHARE, BELOW_ONE = Bound(0, 1), Bound(0, 1, below=True)
SEED = Bound(0, 2**32 - 1)  # what numpy takes

TRAINER = {
    "max_epochs": Bound(1, off=-1), "max_steps": Bound(1, off=-1), "min_epochs": NOT_NEGATIVE,
    "min_steps": NOT_NEGATIVE, "limit_train_batches": POSITIVE, "limit_val_batches": NOT_NEGATIVE,
    "limit_test_batches": NOT_NEGATIVE, "limit_predict_batches": NOT_NEGATIVE, "overfit_batches": NOT_NEGATIVE,
    "fast_dev_run": NOT_NEGATIVE, "val_check_interval": POSITIVE, "check_val_every_n_epoch": COUNT,
    "num_sanity_val_steps": Bound(-1), "log_every_n_steps": NOT_NEGATIVE, "accumulate_grad_batches": COUNT,
    "gradient_clip_val": NOT_NEGATIVE, "num_nodes": COUNT, "reload_dataloaders_every_n_epochs": NOT_NEGATIVE,
}  # fmt: skip
CALLBACKS = {
    "patience": NOT_NEGATIVE, "min_delta": NOT_NEGATIVE, "save_top_k": Bound(-1), "every_n_epochs": NOT_NEGATIVE,
    "every_n_train_steps": NOT_NEGATIVE, "decay": SHARE, "swa_lrs": POSITIVE, "swa_epoch_start": NOT_NEGATIVE,
    "annealing_epochs": NOT_NEGATIVE, "refresh_rate": NOT_NEGATIVE, "leave": NOT_NEGATIVE, "max_depth": Bound(-1),
    "min_lr": POSITIVE, "max_lr": POSITIVE, "num_training_steps": COUNT, "early_stop_threshold": POSITIVE,
    "steps_per_trial": COUNT, "init_val": COUNT, "max_trials": COUNT, "batch_size": COUNT, "margin": SHARE,
    "window_size": COUNT, "unfreeze_backbone_at_epoch": NOT_NEGATIVE, "backbone_initial_ratio_lr": POSITIVE,
    "backbone_initial_lr": POSITIVE, "initial_denom_lr": POSITIVE, "train_bn": NOT_NEGATIVE,
    "update_every_n_steps": COUNT, "update_starting_at_step": NOT_NEGATIVE, "update_starting_at_epoch": NOT_NEGATIVE,
    "amount": POSITIVE,
}  # fmt: skip
OPTIMIZERS = {
    "lr": POSITIVE, "momentum": BELOW_ONE, "dampening": SHARE, "betas": BELOW_ONE, "alpha": SHARE, "rho": SHARE,
    "eps": NOT_NEGATIVE, "weight_decay": NOT_NEGATIVE, "lr_decay": NOT_NEGATIVE, "momentum_decay": NOT_NEGATIVE,
    "initial_accumulator_value": NOT_NEGATIVE, "lambd": NOT_NEGATIVE, "t0": NOT_NEGATIVE, "etas": POSITIVE,
    "step_sizes": POSITIVE, "max_iter": COUNT, "max_eval": COUNT, "history_size": COUNT, "ns_steps": COUNT,
    "tolerance_grad": NOT_NEGATIVE, "tolerance_change": NOT_NEGATIVE, "d": POSITIVE, "iterations": COUNT,
    "matrix_lr": POSITIVE, "vector_lr": POSITIVE, "sgd_momentum": BELOW_ONE,
}  # fmt: skip
SCHEDULERS = {
    "step_size": COUNT, "gamma": POSITIVE, "milestones": NOT_NEGATIVE, "T_max": COUNT, "T_0": COUNT, "T_mult": COUNT,
    "eta_min": NOT_NEGATIVE, "factor": Bound(0, 1, above=True), "start_factor": Bound(0, 1, above=True),
    "end_factor": SHARE, "total_iters": COUNT, "power": POSITIVE, "patience": NOT_NEGATIVE, "threshold": NOT_NEGATIVE,
    "cooldown": NOT_NEGATIVE, "min_lr": NOT_NEGATIVE, "eps": NOT_NEGATIVE, "max_lr": POSITIVE, "base_lr": NOT_NEGATIVE,
    "total_steps": COUNT, "epochs": COUNT, "steps_per_epoch": COUNT, "pct_start": SHARE, "div_factor": POSITIVE,
    "final_div_factor": POSITIVE, "step_size_up": COUNT, "step_size_down": COUNT, "base_momentum": SHARE,
    "max_momentum": SHARE, "swa_lr": POSITIVE, "anneal_epochs": NOT_NEGATIVE, "last_epoch": Bound(-1),
    "warmup": BELOW_ONE, "final": SHARE,
}  # fmt: skip
BY_CLASS = {Callback: CALLBACKS, Optimizer: OPTIMIZERS, LRScheduler: SCHEDULERS}
NAMES = {"name", "version"}  # of loggers, where an empty one means no folder


def check_values(verb: str, config: Namespace) -> None:
    """Checks the numbers and names of a parsed config.

    Args:
        verb: The verb. Only a fit looks at all settings; the others at those that they use.
        config: The verb's config.

    Raises:
        UserError: For the first value that is out of range, and for the first one that is empty.
    """
    _check("seed_everything", config.get("seed_everything"), SEED)
    trainer = config.get("trainer") or {}
    if verb == "fit":
        for name, bound in TRAINER.items():
            _check(f"trainer.{name}", trainer.get(name), bound)
        for what in ("epochs", "steps"):
            least, most = trainer.get(f"min_{what}"), trainer.get(f"max_{what}")
            if least and most is not None and -1 < most < least:
                raise UserError(
                    f"trainer.min_{what} is {least}: it must not be above trainer.max_{what}, which is {most}."
                )
    else:
        limit = {"validate": "limit_val_batches", "test": "limit_test_batches", "predict": "limit_predict_batches"}
        _check(f"trainer.{limit[verb]}", trainer.get(limit[verb]), POSITIVE)
    found = {}
    for key, class_path, name, value in _settings(config.as_dict()):
        found[key] = value
        # What lies deeper in a class' argument, such as a theme, is that class' own affair.
        if value == "" and class_path != "" and name not in NAMES and not _empty_by_default(class_path, name):
            raise UserError(f"{key} is empty: give a value, or leave it out.")
        if verb == "fit":
            _check(key, value, _bound(class_path, name, key))
    for key, base in found.items():  # of cyclic schedules
        top = key.replace(".base_", ".max_")
        if top != key and _is_number(base) and _is_number(found.get(top)) and base > found[top]:
            raise UserError(f"{key} is {base}: it must not be above {top}, which is {found[top]}.")


def _bound(class_path: str | None, name: str, key: str) -> Bound | None:
    if key.startswith("data."):
        return SEED if name == "seed" else None
    if key.endswith("schedule.frequency"):
        return COUNT
    found = _class(class_path)
    if not isinstance(found, type):
        return None
    return next((bounds.get(name) for base, bounds in BY_CLASS.items() if issubclass(found, base)), None)


def _empty_by_default(class_path: str | None, name: str) -> bool:
    found = _class(class_path)
    parameter = inspect.signature(found).parameters.get(name) if callable(found) else None
    return parameter is not None and parameter.default == ""


def _class(class_path: str | None) -> Any:
    module, _, name = (class_path or "").rpartition(".")
    return getattr(sys.modules.get(module), name, None)  # the parser has imported it


def _settings(value: Any, key: str = "", class_path: str | None = None) -> Iterator[tuple[str, str | None, str, Any]]:
    """All settings below a value: key, path of the class that takes it ("" for a part of its argument), name, value."""
    if isinstance(value, dict):
        if isinstance(value.get("class_path"), str):
            settings = value.get("init_args")
            yield from _settings(settings if isinstance(settings, dict) else {}, key, value["class_path"])
            return
        for name, part in value.items():
            below = f"{key}.{name}" if key else str(name)
            yield below, class_path, str(name), part
            yield from _settings(part, below, None if class_path is None else "")
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            if isinstance(part, (dict, list, tuple)):
                yield from _settings(part, f"{key}[{number}]", class_path)


def _check(key: str, value: Any, bound: Bound | None) -> None:
    numbers = value if isinstance(value, (list, tuple)) else [value]
    if bound is not None and not all(bound.holds(number) for number in numbers if _is_number(number)):
        raise UserError(f"{key} is {value}: it must be {bound}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
