"""What is known of metrics by their names."""

from typing import TYPE_CHECKING, Any, Literal

from litlab.errors import UserError
from litlab.util.text import nearest, some

if TYPE_CHECKING:  # `runs` and `compare` answer without torch
    from lightning.pytorch import Trainer
    from torch import nn
    from torchmetrics import Metric

Direction = Literal["min", "max"]

# What litlab's and the project's tasks log after ``train/``, ``val/`` and ``test/``.
HIGHER = {"acc", "f1", "r2"}
LOWER = {"loss", "loss_step", "mse", "mae", "mase"}
PER_TARGET = {"mse", "mae", "r2"}
STAGES = ("train", "val", "test")


def metric_direction(name: str, model: "nn.Module | None" = None) -> Direction | None:
    """Return whether a metric is better when lower ("min") or higher ("max"); None where it is not
    known.

    The model's own torchmetrics tell it, then the names that our tasks log; a user's own name is
    never guessed at.

    Args:
        name: As it is logged, such as ``val/acc``.
        model: The model that logs it.
    """
    metric = None if model is None else _metrics_of(model).get(name)
    if metric is not None and metric.higher_is_better is not None:
        return "max" if metric.higher_is_better else "min"
    stage, _, stem = name.partition("/")
    head = stem.partition("_")[0]  # of one target, or after so many steps: mse_price, mse_5
    if head in PER_TARGET:
        stem = head
    if stage not in STAGES or stem not in HIGHER | LOWER:
        return None
    return "max" if stem in HIGHER else "min"


def choose_mode(key: str, mode: Any, monitor: str, model: "nn.Module | None" = None) -> Direction:
    """Return the direction of a metric that a callback or schedule monitors.

    Args:
        key: The setting that holds its mode, such as ``checkpoint.mode``.
        mode: "min" or "max"; None: the metric's known direction.
        monitor: The metric.
        model: The model that logs it.

    Raises:
        UserError: If the mode is wrong, or neither it nor the direction of the metric is known.
    """
    direction = metric_direction(monitor, model)
    if mode is None and direction is None:
        raise UserError(
            f"{key}: it is not known whether a lower or a higher {monitor} is better; set min or "
            "max"
        )
    if mode is not None and direction is not None and mode != direction:
        better = "lower" if direction == "min" else "higher"
        # torch's own default is min
        otherwise = "" if key.startswith("model.") else ", or leave mode out"
        raise UserError(f"{key}: {monitor} is better when {better}; set {direction}{otherwise}")
    return mode or direction  # pyright: ignore[reportReturnType]


def check_monitor(key: str, monitor: str | None, trainer: "Trainer") -> None:
    """Refuse a metric that a validation has not logged; in a sanity check, which may log less, only
    tell.

    Args:
        key: The setting that names it, such as ``checkpoint.monitor``.
        monitor: The metric; of others than those of the validation nothing is known.
        trainer: The Trainer, after a validation.

    Raises:
        UserError: If a fit can't monitor it.
    """
    logged = sorted(trainer.callback_metrics)
    if monitor is None or not monitor.startswith("val") or monitor in logged:
        return
    problem = (
        f"{key}: no validation logs "
        f"{monitor}{nearest(monitor, logged, f'; name one of {some(logged)}')}"
    )
    if not trainer.sanity_checking and trainer.state.fn == "fit":
        raise UserError(problem)
    from lightning.pytorch.utilities import rank_zero_info

    rank_zero_info(f"warning: {problem}")


def _metrics_of(model: "nn.Module") -> "dict[str, Metric]":
    """Return the torchmetrics of a model by the names that they are logged by, as far as these are
    known.
    """
    from torchmetrics import MetricCollection

    metrics: dict[str, Metric] = {}
    for part in model.modules():
        if isinstance(part, MetricCollection):
            metrics |= dict(part.items())
    return metrics
