"""Metrics that the user names, tried before the first batch."""

import warnings
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from litlab.errors import UserError, first_line
from litlab.metrics.stage_metrics import StageMetrics
from litlab.metrics.state import load_metric_states, metric_states
from litlab.util.team import is_own

TAKEN = ("loss", "loss_step", "acc", "f1", "errors", "mse", "mae", "r2")
MOST = 16  # classes that a metric is tried with: some take a time for each


def check_metrics(
    metrics: dict[str, Metric], classes: int | None, targets: int = 1, taken: Collection[str] = ()
) -> None:
    """Try each metric with a made-up batch: what fails now would fail at the end of the first epoch.

    Args:
        metrics: By the name that is logged after ``train/``, ``val/`` and ``test/``.
        classes: Number of classes; None in regression.
        targets: Number of targets in regression.
        taken: Further names that the model logs itself.

    Raises:
        UserError: If a name is taken, or a metric can't be used.
    """
    for name, metric in metrics.items():
        key = f"model.metrics.{name}"
        if name in TAKEN or name in taken or hasattr(nn.ModuleDict(), name):
            raise UserError(f"{key}: this name is taken; choose another one")
        if not name.isidentifier():
            raise UserError(f"{key}: it is not a valid name; use letters, digits and underscores")
        if not isinstance(metric, Metric):
            raise UserError(f"{key}: {type(metric).__name__} is no torchmetrics.Metric; name a subclass of it")
        own = getattr(metric, "num_classes", None)
        if classes is not None and own not in (None, classes):
            raise UserError(f"{key}.num_classes: {own} differs from the {classes} classes of the data; set {classes}")
        if sum(isinstance(part, Metric) for part in metric.modules()) > 1:
            raise UserError(f"{key}: {type(metric).__name__} wraps another metric; name that one")
        try:
            _try(key, metric, classes, targets)
        except UserError:
            raise
        except Exception as error:
            if is_own(type(metric).__module__):  # a bug
                raise
            batch = (
                f"the numbers of {targets} targets" if classes is None else f"the probabilities of {classes} classes"
            )
            what = f"{type(metric).__name__} can't take {batch}"
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"{key}: {what} ({reason}); use another metric or other settings") from error


def _try(key: str, metric: Metric, classes: int | None, targets: int) -> None:
    rows = min(classes or targets, MOST) + 1  # not as many as classes: some metrics would take one for the other
    if classes is None:
        target = torch.arange(1.0, 1 + rows * targets).reshape(rows, targets)
        predicted = target + target.sqrt()
    else:
        target, predicted = torch.arange(rows) % classes, torch.eye(rows, classes)
    first, second = (
        StageMetrics(MetricCollection({}), "train", further={"tried": metric}, softmax=classes is not None)
        for _ in range(2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is special about a few samples
        first.add(torch.tensor(0.0), predicted, target)
        value = first.compute(lambda sums: sums)["train/tried"]
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"{value.numel()} numbers" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise UserError(
            f"{key}: {type(metric).__name__} returns {what} instead of one; "
            f"{'set average: macro, or ' if classes else ''}use another metric"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_metric_states(second, metric_states(first), torch.device("cpu"))
        again = second.compute(lambda sums: sums)["train/tried"]
    if not torch.equal(value.nan_to_num(), again.nan_to_num()):
        what = f"{type(metric).__name__} can't go on from a checkpoint that is written within an epoch"
        raise UserError(f"{key}: {what}; use another metric")
