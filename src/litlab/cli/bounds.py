"""Bounds of settings of Lightning and torch, whose own classes accept numbers that make no sense, such as -1 epochs.

They would train something else than what was asked for, or nothing. So the tables below, by the names of settings, are
checked against the parsed config before anything is built. Classes of your own have types instead (`litlab.types`).
"""

import inspect
from collections.abc import Iterator
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Callback
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from litlab.errors import UserError
from litlab.types import Bounds, is_number
from litlab.util.class_blocks import class_blocks, imported


def _table(text: str) -> dict[str, Bounds]:
    found: dict[str, Bounds] = {}
    for line in text.strip().splitlines():
        conditions, names = line.split("|")
        conditions, _, also = conditions.partition(" or ")
        bounds = Bounds(*conditions.strip().split(" and "), also=int(also) if also else None)
        found |= dict.fromkeys(names.split(), bounds)
    return found


POSITIVE = Bounds("> 0")
SEED = Bounds(">= 0", f"<= {2**32 - 1}")  # what numpy takes
TRAINER = _table("""
    >= 1 or -1     | max_epochs max_steps
    >= 1           | check_val_every_n_epoch accumulate_grad_batches num_nodes
    > 0            | limit_train_batches val_check_interval
    >= 0           | min_epochs min_steps limit_val_batches limit_test_batches limit_predict_batches overfit_batches
    >= 0           | fast_dev_run log_every_n_steps gradient_clip_val reload_dataloaders_every_n_epochs
    >= -1          | num_sanity_val_steps
""")
CALLBACKS = _table("""
    >= 1           | num_training_steps steps_per_trial init_val max_trials batch_size window_size update_every_n_steps
    > 0            | swa_lrs min_lr max_lr early_stop_threshold backbone_initial_ratio_lr backbone_initial_lr
    > 0            | initial_denom_lr amount
    >= 0           | patience min_delta every_n_epochs every_n_train_steps swa_epoch_start annealing_epochs refresh_rate
    >= 0           | leave unfreeze_backbone_at_epoch train_bn update_starting_at_step update_starting_at_epoch
    >= 0 and <= 1  | decay margin
    >= -1          | save_top_k max_depth
""")
OPTIMIZERS = _table("""
    >= 1           | max_iter max_eval history_size ns_steps iterations
    > 0            | lr etas step_sizes d matrix_lr vector_lr
    >= 0           | eps weight_decay lr_decay momentum_decay initial_accumulator_value lambd t0
    >= 0           | tolerance_grad tolerance_change
    >= 0 and < 1   | momentum betas sgd_momentum
    >= 0 and <= 1  | dampening alpha rho
""")
SCHEDULERS = _table("""
    >= 1           | step_size T_max T_0 T_mult total_iters total_steps epochs steps_per_epoch
    >= 1           | step_size_up step_size_down
    > 0            | gamma power max_lr div_factor final_div_factor swa_lr
    >= 0           | milestones eta_min patience threshold cooldown min_lr eps base_lr anneal_epochs
    > 0 and <= 1   | factor start_factor
    >= 0 and <= 1  | end_factor pct_start base_momentum max_momentum final
    >= 0 and < 1   | warmup
    >= -1          | last_epoch
""")
BY_CLASS = {Callback: CALLBACKS, Optimizer: OPTIMIZERS, LRScheduler: SCHEDULERS}
NAMES = {"name", "version"}  # of loggers, where an empty one means no folder


def check_values(verb: str, config: Namespace) -> None:
    """Check the numbers and names of a parsed config.

    Args:
        verb: The verb. Only a fit looks at all settings; the others at those that they use.
        config: The verb's config.

    Raises:
        UserError: For the first value that is out of bounds or empty.
    """
    _check("seed_everything", config.get("seed_everything"), SEED)
    trainer = config.get("trainer") or {}
    if verb == "fit":
        for name, bounds in TRAINER.items():
            _check(f"trainer.{name}", trainer.get(name), bounds)
        for what in ("epochs", "steps"):
            least, most = trainer.get(f"min_{what}"), trainer.get(f"max_{what}")
            if least and most is not None and -1 < most < least:
                raise _refusal(f"trainer.min_{what}", least, f"at most trainer.max_{what}, which is {most}")
    else:
        limit = {"validate": "limit_val_batches", "test": "limit_test_batches", "predict": "limit_predict_batches"}
        _check(f"trainer.{limit[verb]}", trainer.get(limit[verb]), POSITIVE)
    found = {}
    for key, cls, name, value in _settings(config.as_dict()):
        found[key] = value
        if value == "" and name not in NAMES and not _empty_by_default(cls, name):
            raise UserError(f"{key}: it is empty; give it a value, or leave it out")
        if verb == "fit" and isinstance(cls, type):
            _check(
                key, value, next((table.get(name) for base, table in BY_CLASS.items() if issubclass(cls, base)), None)
            )
        if key == "data.seed":
            _check(key, value, SEED)
    for key, base in found.items():  # of cyclic schedules
        top = key.replace(".base_", ".max_")
        if top != key and is_number(base) and is_number(found.get(top)) and base > found[top]:
            raise _refusal(key, base, f"at most {top}, which is {found[top]}")


def _settings(config: dict[str, Any]) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield the settings of a config and of all classes in it: key, class or function that takes it, name, value."""
    for section, values in (("", config), ("trainer.", config.get("trainer") or {})):
        yield from ((f"{section}{name}", None, name, value) for name, value in values.items())
    for key, path, arguments in class_blocks(config):
        found = imported(path)
        yield from ((f"{key}.{name}", found, name, value) for name, value in arguments.items())


def _empty_by_default(found: Any, name: str) -> bool:
    parameter = inspect.signature(found).parameters.get(name) if callable(found) else None
    return parameter is not None and parameter.default == ""


def _check(key: str, value: Any, bounds: Bounds | None) -> None:
    numbers = value if isinstance(value, (list, tuple)) else [value]
    if bounds is not None and not all(number in bounds for number in numbers if is_number(number)):
        raise _refusal(key, value, bounds)


def _refusal(key: str, value: Any, wanted: object) -> UserError:
    return UserError(f"{key}: {value} is not valid; it must be {wanted}")
