"""Bounds of settings of Lightning and torch that an editor shows, by the names of settings."""

from ast import literal_eval
from typing import Any

from lightning.pytorch import Callback
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

KEYWORDS = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}


def make_range(*conditions: str) -> dict[str, Any]:
    """Return the rule for numbers that meet all of some conditions, such as ``">= 0"`` and ``"< 1"``."""
    pairs = [condition.split() for condition in conditions]
    return {KEYWORDS[sign]: literal_eval(end) for sign, end in pairs}


def _table(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in text.strip().splitlines():
        conditions, names = line.split("|")
        conditions, _, also = conditions.partition(" or ")
        rule = make_range(*conditions.split(" and "))
        if also:  # a number outside the bounds that has a meaning of its own
            rule = {"if": {"not": {"const": int(also)}}, "then": rule}
        found |= dict.fromkeys(names.split(), rule)
    return found


SEED = make_range(">= 0", f"<= {2**32 - 1}")  # what numpy takes
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
    > 0            | lr etas step_sizes d rest_lr vector_lr
    >= 0           | eps weight_decay lr_decay momentum_decay initial_accumulator_value lambd t0
    >= 0           | tolerance_grad tolerance_change
    >= 0 and < 1   | momentum betas rest_momentum
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
