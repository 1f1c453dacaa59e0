"""Loss and metrics of one stage, at the cost of two list appends per step, and their states in checkpoints."""

from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from litlab.metrics.sums import WIDEST, Sums, gather_rows


class StageMetrics(nn.Module):
    """Mean loss and metrics of a stage (train, val or test).

    Updating a torchmetrics collection at every step costs more than a small network's step (about 0.2 ms of CPU), so
    steps only keep their tensors and `flush` updates the metrics for many steps at once. Every sample counts exactly
    once, and nothing waits for the device until `compute`.

    Args:
        stage: Prefix of the logged names: train, val or test.
        metrics: The task's own, updated with (outputs, target) of many steps at once. Cloned, so that each stage counts
            on its own.
        further: The user's, updated with (outputs, target) batch by batch. Cloned as well; one with a name of the
            task's takes its place.
        softmax: Whether `further` get probabilities, the softmax of the outputs.
        flush_every: Steps kept at most before a flush; bounds the memory that their outputs take.
    """

    def __init__(
        self,
        stage: str,
        metrics: dict[str, Metric] | None = None,
        further: dict[str, Metric] | None = None,
        *,
        softmax: bool = False,
        flush_every: int = 50,
    ) -> None:
        super().__init__()
        self.stage = stage
        self.softmax = softmax
        self.flush_every = flush_every
        self.loss = Sums(2)  # of the losses of samples, and of samples
        self.metrics = _collect(metrics, stage)
        self.further = _collect(further, stage)
        self._losses: list[tuple[Tensor, int]] = []
        self._steps: list[tuple[Tensor, Tensor]] = []
        for metric in self.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = metric.dist_sync_fn or gather_rows

    def add(self, loss: Tensor, outputs: Tensor | None, target: Tensor) -> None:
        """Add a step.

        Args:
            loss: Mean loss of the batch, shape ().
            outputs: Shape (batch, ...), such as logits. None: the loss is all.
            target: Shape (batch, ...), such as labels.
        """
        # Copies, as a CUDA graph's next run overwrites its outputs
        self._losses.append((loss.detach().clone(), len(target)))
        if outputs is not None:
            self._steps.append((outputs.detach().clone(), target))
        if len(self._losses) >= self.flush_every:
            self.flush()

    def flush(self) -> None:
        """Update the metrics with all steps since the last flush."""
        if self._losses:
            losses, samples = zip(*self._losses, strict=True)
            weights = torch.tensor(samples, dtype=WIDEST).to(losses[0].device, non_blocking=True)
            self.loss.update(torch.stack([torch.stack(losses).to(WIDEST) @ weights, weights.sum()]))
            self._losses.clear()
        steps, self._steps = self._steps, []
        if steps:
            outputs, targets = zip(*steps, strict=True)
            self.metrics.update(torch.cat(outputs), torch.cat(targets))
        # Batch by batch: sums of floats then round alike, whenever a checkpoint made a flush.
        for outputs, target in steps if self.further else []:
            self.further.update(outputs.softmax(dim=1) if self.softmax else outputs, target)

    def compute(self) -> dict[str, Tensor]:
        """Return the means since `reset` over all ranks, by logged name such as ``val/acc``."""
        self.flush()
        total, samples = self.loss.compute()
        return {f"{self.stage}/loss": (total / samples).float(), **self.metrics.compute(), **self.further.compute()}

    def reset(self) -> None:
        """Start an epoch."""
        self._losses.clear()
        self._steps.clear()
        for metrics in (self.loss, self.metrics, self.further):
            metrics.reset()


def _collect(metrics: dict[str, Metric] | None, stage: str) -> MetricCollection:
    return MetricCollection(metrics or {}, prefix=f"{stage}/", compute_groups=False).clone()  # pyright: ignore[reportArgumentType]


def metric_states(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Return the state of each torchmetrics.Metric of a module that was updated since its reset, by its name."""
    for part in module.modules():
        if isinstance(part, StageMetrics):
            part.flush()
        elif isinstance(part, MetricCollection):
            part.items(copy_state=False)  # those that share a state get that of the first one

    states: dict[str, dict[str, Any]] = {}
    for name, part in module.named_modules():
        if isinstance(part, Metric) and part.update_count:
            state = apply_to_collection(part.metric_state, Tensor, lambda value: value.detach().to("cpu", copy=True))
            states[name] = {**state, "_update_count": part.update_count}
    return states


def load_metric_states(module: nn.Module, states: dict[str, dict[str, Any]], device: torch.device) -> None:
    """Restore what `metric_states` returned, on this device."""
    for name, state in states.items():
        vars(module.get_submodule(name)).update(apply_to_collection(state, Tensor, Tensor.to, device))
