"""Loss and metrics of one stage, at the cost of two list appends per step."""

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from litlab.metrics.gathering import gather_rows
from litlab.metrics.mean_loss import MeanLoss, Reduce


class StageMetrics(nn.Module):
    """Mean loss and metrics of a stage (train, val or test).

    Updating a torchmetrics collection at every step costs more than a small network's step (about 0.2 ms of CPU), so
    steps only keep their tensors and `flush` updates the metrics for many steps at once. Every sample counts exactly
    once, and nothing waits for the device until `compute`.

    Args:
        metrics: Counts, such as accuracy: updated with (logits, labels) of many steps at once. Cloned, so that each
            stage counts on its own.
        stage: Prefix of the logged names: train, val or test.
        flush_every: Steps kept at most before a flush; bounds the memory that their logits take.
        further: Any metrics, updated with (probabilities, labels) batch by batch. Cloned as well.
        softmax: Whether probabilities are the softmax of what was added; else they get that itself, as in regression.
    """

    def __init__(
        self,
        metrics: MetricCollection,
        stage: str,
        flush_every: int = 50,
        further: dict[str, Metric] | None = None,
        softmax: bool = True,
    ) -> None:
        super().__init__()
        self.stage = stage
        self.loss = MeanLoss(flush_every)
        self.metrics = metrics.clone(prefix=f"{stage}/")
        self.further: Any = nn.ModuleDict({name: metric.clone() for name, metric in (further or {}).items()})
        for metric in self.by_name.values():
            metric.dist_sync_fn = metric.dist_sync_fn or gather_rows
        self.flush_every = flush_every
        self.softmax = softmax
        self._steps: list[tuple[Tensor, Tensor]] = []

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a step.

        Args:
            loss: Mean loss of the batch, shape ().
            logits: Shape (batch, classes).
            labels: Shape (batch,).
        """
        self.loss.add(loss, len(labels))
        if len(self._steps) >= self.flush_every:
            self.flush()
        logits = logits.detach()
        # With CUDA graphs the next step overwrites it.
        self._steps.append((logits.clone() if logits.is_cuda else logits, labels))

    def flush(self) -> None:
        """Update the metrics with all steps since the last flush."""
        steps, self._steps = self._steps, []
        if not steps:
            return
        logits, labels = zip(*steps, strict=True)
        self.metrics.update(torch.cat(logits).float(), torch.cat(labels))
        # Batch by batch: sums of floats then round alike, whenever a checkpoint made a flush.
        for logits, labels in steps if self.further else []:
            probabilities = logits.float().softmax(dim=1) if self.softmax else logits.float()
            for metric in self.further.values():
                metric.update(probabilities, labels)

    def compute(self, reduce: Reduce) -> dict[str, Tensor]:
        """Return the means since `reset` over all ranks, by logged name such as ``val/acc``."""
        self.flush()
        further = {f"{self.stage}/{name}": metric.compute() for name, metric in self.further.items()}
        return {f"{self.stage}/loss": self.loss.compute(reduce), **self.metrics.compute(), **further}

    @property
    def by_name(self) -> dict[str, Metric]:
        """The metrics by logged name such as ``val/acc``, without the loss."""
        further = {f"{self.stage}/{name}": metric for name, metric in self.further.items()}
        return {**dict(self.metrics.items()), **further}

    def reset(self, device: torch.device) -> None:
        """Start an epoch, on this device."""
        self.loss.reset(device)
        self._steps.clear()
        for metric in (self.metrics, *self.further.values()):
            metric.reset()
