"""Loss and metrics of one stage, at the cost of two list appends per step."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from litlab.errors import UserError, building
from litlab.metrics.gathering import gather_rows
from litlab.metrics.mean_loss import MeanLoss, Reduce


class StageMetrics(nn.Module):
    """Mean loss and metrics of a stage (train, val or test).

    Updating a torchmetrics collection at every step costs more than a small network's step (about 0.2 ms of CPU), so
    steps only keep their tensors and `flush` updates the metrics for many steps at once. Every sample counts exactly
    once, and nothing waits for the device until `compute`.

    Args:
        metrics: The task's own, updated with (outputs, target) of many steps at once. Cloned, so that each stage counts
            on its own.
        stage: Prefix of the logged names: train, val or test.
        further: The user's, updated with (outputs, target) batch by batch. Cloned as well.
        softmax: Whether `further` get probabilities, the softmax of the outputs.
        flush_every: Steps kept at most before a flush; bounds the memory that their outputs take.

    Raises:
        UserError: A name in `further` is taken; at the first step, if one of them returns more than one number.
    """

    def __init__(
        self,
        metrics: MetricCollection,
        stage: str,
        further: dict[str, Metric] | None = None,
        *,
        softmax: bool = False,
        flush_every: int = 50,
    ) -> None:
        super().__init__()
        self.stage = stage
        self.softmax = softmax
        self.flush_every = flush_every
        self.loss = MeanLoss(flush_every)
        self.metrics = metrics.clone(prefix=f"{stage}/")
        chosen: Any = further or {}
        self.further = MetricCollection(chosen, prefix=f"{stage}/", compute_groups=False).clone()
        self._steps: list[tuple[Tensor, Tensor]] = []
        self._tried = not further

        names = [name for metric in metrics.values() for name in getattr(metric, "names", [])]
        for name in {"loss", "loss_step", *metrics, *names}.intersection(further or {}):
            raise UserError(f"model.metrics.{name}: the model logs this name itself; choose another one")
        for metric in self.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = metric.dist_sync_fn or gather_rows

    def add(self, loss: Tensor, outputs: Tensor, target: Tensor) -> None:
        """Add a step.

        Args:
            loss: Mean loss of the batch, shape ().
            outputs: Shape (batch, ...), such as logits.
            target: Shape (batch, ...), such as labels.
        """
        self.loss.add(loss, len(target))
        outputs = outputs.detach()
        if not self._tried:
            self._try(outputs, target)
        if len(self._steps) >= self.flush_every:
            self.flush()
        # With CUDA graphs the next step overwrites it.
        self._steps.append((outputs.clone() if outputs.is_cuda else outputs, target))

    def flush(self) -> None:
        """Update the metrics with all steps since the last flush."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        outputs, targets = zip(*steps, strict=True)
        self.metrics.update(torch.cat(outputs), torch.cat(targets))
        # Batch by batch: sums of floats then round alike, whenever a checkpoint made a flush.
        for outputs, target in steps if self.further else []:
            self.further.update(self._predictions(outputs), target)

    def compute(self, reduce: Reduce) -> dict[str, Tensor]:
        """Return the means since `reset` over all ranks, by logged name such as ``val/acc``."""
        self.flush()
        if torch.distributed.is_initialized():
            for metric in self.further.values():
                _join_lists(metric)
        return {f"{self.stage}/loss": self.loss.compute(reduce), **self.metrics.compute(), **self.further.compute()}

    def reset(self, device: torch.device) -> None:
        """Start an epoch, on this device."""
        self._steps.clear()
        self.loss.reset(device)
        self.metrics.reset()
        self.further.reset()

    def _predictions(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(dim=1) if self.softmax else outputs

    def _try(self, outputs: Tensor, target: Tensor) -> None:
        """Refuse at the first step what could not be logged at the end of the epoch."""
        self._tried = True
        with warnings.catch_warnings(), building("model.metrics"):
            warnings.simplefilter("ignore")  # of what is special about a few samples
            values = self.further.clone()(self._predictions(outputs), target)
        for name, value in values.items():
            if not isinstance(value, Tensor) or value.numel() != 1:
                key = name.replace(f"{self.stage}/", "model.metrics.")
                raise UserError(f"{key}: it returns several numbers; set average, or use another metric")


def _join_lists(metric: Metric) -> None:
    """Let each state that is a list hold one tensor: ranks with fewer batches would keep the others waiting."""
    for name, state in metric.metric_state.items():
        if isinstance(state, list):
            rows = dim_zero_cat(state) if state else torch.empty(0, device=metric.device)
            setattr(metric, name, [rows])
