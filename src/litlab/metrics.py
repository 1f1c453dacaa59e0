"""Metrics that are exact over an epoch, any batch size and any number of processes, and their
states in checkpoints.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from litlab.util.ranks import gather_states

# Of sums: exact over millions of samples, and whenever a run was interrupted. Apple's GPUs don't
# have it.
WIDEST = torch.float32 if torch.backends.mps.is_available() else torch.float64


class Sums(Metric):
    """A metric that adds up numbers, over samples and ranks.

    Not torchmetrics' MeanMetric (1.9): it waits for the device to look for NaN, or, told not to,
    forgets the weights.

    Args:
        shape: Shape of ``sums``, in which they are added up: rows, and columns where there are
            several.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.add_state("sums", torch.zeros(shape, dtype=WIDEST), dist_reduce_fx="sum")

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Add a tensor for each row of ``sums``, over all but its last dimensions; subclasses say
        what they take.
        """
        columns = self.sums.shape[1:]
        self.sums = self.sums + torch.stack(
            [term.reshape(-1, *columns).sum(dim=0, dtype=WIDEST) for term in args]
        )

    def compute(self) -> Any:
        return self.sums


class RegressionErrors(Sums):
    """Mean squared error, mean absolute error and R2 (the share of the variance that is explained)
    of each target.

    Not torchmetrics' own (1.9): its R2Score takes sums below 1e-4 for zero, so that small units
    have an R2 of 1, and float32 sums of errors depend on where a run was interrupted.

    Args:
        targets: Their names. Several are told apart by them: ``mse_price``; a single one is just
            ``mse``.
        center: Numbers near the means of the targets: without them R2 of targets far from zero
            would be a difference of large numbers. None: 0.
    """

    def __init__(self, targets: Sequence[str], center: Sequence[float] | None = None) -> None:
        super().__init__(5, len(targets))
        self.center = [0.0] * len(targets) if center is None else list(center)
        self.endings = [f"_{name}" for name in targets] if len(targets) > 1 else [""]

    def update(self, predicted: Tensor, target: Tensor) -> None:
        """Add rows, both float of shape (row, target)."""
        target = target.to(WIDEST)
        error = predicted.to(WIDEST) - target
        target = target - target.new_tensor(self.center)
        super().update(
            torch.ones_like(target), error.square(), error.abs(), target, target.square()
        )

    def compute(self) -> dict[str, Tensor]:
        """Return the errors of each target, each of shape (); R2 is NaN where the target never
        changes.
        """
        count, squared, absolute, total, total_squared = self.sums
        variation = total_squared - total.square() / count
        r2 = (1 - squared / variation).where(variation > 1e-12 * total_squared, torch.nan)
        values = {}
        for index, ending in enumerate(self.endings):
            errors = {"mse": squared / count, "mae": absolute / count, "r2": r2}
            values |= {f"{name}{ending}": error[index].float() for name, error in errors.items()}
        return values


class ForecastMetrics(Sums):
    """Mean errors of forecasts, and coverage and width of their intervals where they have any.

    Args:
        channels: Channels of the series.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(5, channels)
        self.naive_error: Sequence[float] | None = None  # of each channel; with it there is mase

    def update(self, predicted: Tensor, future: Tensor) -> None:
        """Add windows.

        Args:
            predicted: Forecast and ends of its interval, which may be NaN, (batch, horizon,
                channel, 3).
            future: The truth, (batch, horizon, channel).
        """
        forecast, lower, upper = predicted.unbind(dim=-1)
        error = forecast - future
        covered = (lower <= future) & (future <= upper)
        super().update(torch.ones_like(error), error.square(), error.abs(), covered, upper - lower)

    def compute(self) -> dict[str, Tensor]:
        """Return the means, each of shape ()."""
        count, *totals = self.sums
        # Of each channel
        squared, absolute, coverage, width = ((total / count).float() for total in totals)
        values = {"mse": squared.mean(), "mae": absolute.mean()}
        if not width.isnan().any():
            values |= {"coverage": coverage.mean(), "interval_width": width.mean()}
        if self.naive_error is not None:
            values["mase"] = (absolute / torch.as_tensor(self.naive_error).to(absolute)).mean()
        return values


class Conformal(Metric):
    """Widen (or narrow) intervals to cover a share of a held-out split, for each horizon step and
    channel.

    Of each held-out window it takes how far the truth lies outside the model's interval: max(lower
    - y, y - upper). The ceil((n + 1) * coverage)-th smallest of these n scores is the `radius` that
    both ends are moved by. That is conformalised quantile regression (Romano et al. 2019,
    arXiv:1905.03222). For a point forecast, an interval without width, the score is the absolute
    error: split-conformal prediction (Vovk et al. 2005; Lei et al. 2018, arXiv:1604.04173). The
    coverage is guaranteed where held-out and later windows are exchangeable; those of a series that
    drifts are not quite, so it is measured in the test as well.

    The radius is neither state nor buffer: it belongs to the weights that were validated, and an
    average of weights must not average it.

    Args:
        coverage: Share of the truth that the intervals are to cover, between 0 and 1.
    """

    full_state_update = False
    scores: list[Tensor]

    def __init__(self, coverage: float) -> None:
        super().__init__(dist_sync_fn=gather_states)
        self.coverage = coverage
        self.radius: Tensor | None = None  # (horizon, channel); as `compute` returns it, or None
        self.add_state("scores", [], "cat")

    def update(self, lower: Tensor, upper: Tensor, future: Tensor) -> None:
        """Add held-out windows, everything of shape (batch, horizon, channel)."""
        self.scores.append(torch.maximum(lower - future, future - upper).float())

    def compute(self) -> Tensor | None:
        """Return the radius (horizon, channel) of all windows since the reset; None if they are too
        few.
        """
        scores = dim_zero_cat(self.scores)
        # The product can come out above a whole number
        rank = math.ceil((len(scores) + 1) * self.coverage - 1e-9)
        if rank > len(scores):
            return None
        # Not `kthvalue`: it has no deterministic form on GPUs. A view would put all scores into the
        # checkpoint.
        return scores.topk(len(scores) - rank + 1, dim=0).values[-1].clone()

    def interval(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Return the calibrated ends of intervals of shape (batch, horizon, channel), NaN without
        calibration.
        """
        if self.radius is None:
            return torch.full_like(lower, math.nan), torch.full_like(upper, math.nan)
        radius = self.radius.to(lower.device)
        middle = (lower + upper) / 2  # where a negative radius would turn the interval inside out
        return torch.minimum(lower - radius, middle), torch.maximum(upper + radius, middle)


class StageMetrics(nn.Module):
    """Mean loss and metrics of a stage (train, val or test).

    Updating a torchmetrics collection at every step costs more than a small network's step (about
    0.2 ms of CPU), so steps only keep their tensors and `flush` updates the metrics for many steps
    at once. Every sample counts exactly once, and nothing waits for the device until `compute`.

    Args:
        stage: Prefix of the logged names: train, val or test.
        metrics: The task's own, updated with (outputs, target) of many steps at once. Cloned, so
            that each stage counts on its own.
        further: The user's; one with a name of the task's takes its place. With some, all are
            updated batch by batch: sums of floats then round alike, whenever a checkpoint made a
            flush.
        flush_every: Steps kept at most before a flush; bounds the memory that their outputs take.
    """

    def __init__(
        self,
        stage: str,
        metrics: dict[str, Metric] | None = None,
        further: dict[str, Metric] | None = None,
        *,
        flush_every: int = 50,
    ) -> None:
        super().__init__()
        self.stage = stage
        self.by_batch = bool(further)
        self.flush_every = flush_every
        self.loss = Sums(2)  # of the losses of samples, and of samples
        everything: Any = {**(metrics or {}), **(further or {})}
        self.metrics = MetricCollection(
            everything, prefix=f"{stage}/", compute_groups=False
        ).clone()
        self._steps: list[tuple[Tensor, Tensor | None, Tensor]] = []
        for metric in self.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = metric.dist_sync_fn or gather_states

    def add(self, loss: Tensor, outputs: Tensor | None, target: Tensor) -> None:
        """Add a step.

        Args:
            loss: Mean loss of the batch, shape ().
            outputs: What the metrics take, of shape (batch, ...), such as probabilities. None: the
                loss is all.
            target: Shape (batch, ...), such as labels.
        """
        # Copies, as a CUDA graph's next run overwrites its outputs
        outputs = None if outputs is None else outputs.detach().clone()
        self._steps.append((loss.detach().clone(), outputs, target))
        if len(self._steps) >= self.flush_every:
            self.flush()

    def flush(self) -> None:
        """Update loss and metrics with all steps since the last flush."""
        if not self._steps:
            return
        losses, outputs, targets = map(list, zip(*self._steps, strict=True))
        self._steps.clear()
        samples = torch.tensor([len(target) for target in targets], dtype=WIDEST)
        samples = samples.to(losses[0].device, non_blocking=True)
        self.loss.update(torch.stack(losses) * samples, samples)
        if outputs[0] is None:
            return
        if not self.by_batch:
            outputs, targets = [torch.cat(outputs)], [torch.cat(targets)]
        for pair in zip(outputs, targets, strict=True):
            self.metrics.update(*pair)

    def compute(self) -> dict[str, Tensor]:
        """Return the means since `reset` over all ranks, by logged name such as ``val/acc``.

        Of no sample at all there are none: the steps of a subclass may log by themselves.
        """
        self.flush()
        total, samples = self.loss.compute()
        if not samples:
            return {}
        # The loss last, in all tables: what it is measured by is what people look for
        return {**self.metrics.compute(), f"{self.stage}/loss": (total / samples).float()}

    def reset(self) -> None:
        """Start an epoch."""
        self._steps.clear()
        self.loss.reset()
        self.metrics.reset()


def metric_states(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Return the state of each torchmetrics.Metric of a module that was updated since its reset, by
    its name.
    """
    for part in module.modules():
        if isinstance(part, StageMetrics):
            part.flush()
        elif isinstance(part, MetricCollection):
            part.items(copy_state=False)  # those that share a state get that of the first one

    states: dict[str, dict[str, Any]] = {}
    for name, part in module.named_modules():
        if isinstance(part, Metric) and part.update_count:
            state = apply_to_collection(
                part.metric_state, Tensor, lambda value: value.detach().to("cpu", copy=True)
            )
            states[name] = {**state, "_update_count": part.update_count}
    return states


def load_metric_states(
    module: nn.Module, states: dict[str, dict[str, Any]], device: torch.device
) -> None:
    """Restore what `metric_states` returned, on this device."""
    for name, state in states.items():
        vars(module.get_submodule(name)).update(
            apply_to_collection(state, Tensor, Tensor.to, device)
        )


def classification_scores(predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compute accuracy (``test/acc``) and macro F1 (``test/f1``) of predicted classes, int64 of
    shape (sample,).
    """
    from sklearn.metrics import accuracy_score, f1_score

    macro = cast(float, f1_score(labels, predicted, average="macro"))
    return {"test/acc": float(accuracy_score(labels, predicted)), "test/f1": float(macro)}


def regression_scores(
    predicted: np.ndarray, truth: np.ndarray, names: Sequence[str]
) -> dict[str, float]:
    """Compute squared and absolute error and R2 of predictions and truth, both float64 of shape
    (sample, target).

    Returns:
        ``test/mse``, ``test/mae`` and ``test/r2``; where there are several targets with the name of
        each at its end.
    """
    errors = RegressionErrors(names, truth.mean(0))
    errors.update(torch.tensor(predicted), torch.tensor(truth))
    return {f"test/{name}": value.item() for name, value in errors.compute().items()}


def label_scores(predicted: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Compute F1 at a threshold of one half (``test/f1``) and average precision
    (``test/average_precision``), means over the labels, of shape (sample, label).
    """
    from sklearn.metrics import average_precision_score, f1_score

    options: Any = {"average": "macro", "zero_division": 0}
    f1 = cast(float, f1_score(truth, predicted > 0.5, **options))
    precision = cast(float, average_precision_score(truth, predicted, average="macro"))
    return {"test/f1": float(f1), "test/average_precision": float(precision)}
