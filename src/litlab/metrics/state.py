"""The state of all metrics of a module, for checkpoints within an epoch."""

from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from litlab.metrics.stage_metrics import StageMetrics

States = dict[str, dict[str, Any]]  # by the name of the metric in its module


def metric_states(module: nn.Module) -> States:
    """Return the state of each torchmetrics.Metric of a module that was updated since its reset."""
    for part in module.modules():
        if isinstance(part, StageMetrics):
            part.flush()
        elif isinstance(part, MetricCollection):
            part.items(copy_state=False)  # those that share a state get that of the first one

    states: States = {}
    for name, part in module.named_modules():
        if isinstance(part, Metric) and part.update_count:
            state = apply_to_collection(part.metric_state, Tensor, lambda value: value.detach().to("cpu", copy=True))
            states[name] = {"updates": part.update_count, "state": state}
    return states


def load_metric_states(module: nn.Module, states: States, device: torch.device) -> None:
    """Restore what `metric_states` returned, on this device."""
    parts: dict[str, Any] = dict(module.named_modules())
    for name, saved in states.items():
        parts[name]._update_count = saved["updates"]
        for key, value in apply_to_collection(saved["state"], Tensor, Tensor.to, device).items():
            setattr(parts[name], key, value)
