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
        further: The user's; one with a name of the task's takes its place. With some, all are updated batch by batch:
            sums of floats then round alike, whenever a checkpoint made a flush.
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
        self.metrics = MetricCollection(everything, prefix=f"{stage}/", compute_groups=False).clone()
        self._steps: list[tuple[Tensor, Tensor | None, Tensor]] = []
        for metric in self.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = metric.dist_sync_fn or gather_rows

    def add(self, loss: Tensor, outputs: Tensor | None, target: Tensor) -> None:
        """Add a step.

        Args:
            loss: Mean loss of the batch, shape ().
            outputs: What the metrics take, of shape (batch, ...), such as probabilities. None: the loss is all.
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
        """Return the means since `reset` over all ranks, by logged name such as ``val/acc``."""
        self.flush()
        total, samples = self.loss.compute()
        return {f"{self.stage}/loss": (total / samples).float(), **self.metrics.compute()}

    def reset(self) -> None:
        """Start an epoch."""
        self._steps.clear()
        self.loss.reset()
        self.metrics.reset()


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
