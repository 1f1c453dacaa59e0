"""What strategies share in which several processes train on the same samples."""

from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torchmetrics import Metric
from typing_extensions import override

from litlab.metrics.gathering import gather_rows
from litlab.util.strategies import share_buffers


class DataGroups(ModelParallelStrategy):
    """A strategy with a mesh ``(data_parallel, tensor_parallel)`` of processes.

    Along its second dimension processes have the same samples. So sums over all processes count each sample several
    times, and metrics are gathered along the first dimension only.
    """

    @property
    def replicas(self) -> int:
        """Processes that have the same samples."""
        return self.device_mesh["tensor_parallel"].size()

    @property
    def data_group(self) -> ProcessGroup:
        """The processes that share the samples with this one, one of each set of replicas."""
        return self.device_mesh["data_parallel"].get_group()

    def gather_in_data_group(self, module: nn.Module) -> None:
        """Let all torchmetrics of a module gather from `data_group`."""

        def gather(value: Tensor, group: Any = None) -> list[Tensor]:  # a function is copied with a metric, a group not
            return gather_rows(value, self.data_group)

        for metric in module.modules():
            if isinstance(metric, Metric):
                metric.dist_sync_fn = gather

    @override
    def on_validation_start(self) -> None:
        assert self.lightning_module is not None
        share_buffers(self.lightning_module.trainer)  # as DDP does

    on_test_start = on_predict_start = on_validation_start

    @override
    def reduce(self, tensor: Tensor | Any, group: Any = None, reduce_op: Any = "mean") -> Tensor:
        reduced = super().reduce(tensor, group, reduce_op)
        if group is None and str(reduce_op).lower().endswith("sum") and isinstance(tensor, Tensor):
            reduced = reduced / self.replicas if reduced.is_floating_point() else reduced // self.replicas
        return reduced

    @override
    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        # Lightning's sums the decisions, which `reduce` would divide.
        votes = super().reduce(torch.tensor(int(decision), device=self.root_device), reduce_op="sum").item()
        return votes == self.world_size if all else votes > 0
