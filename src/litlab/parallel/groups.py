"""Which processes have the same samples, and which have parts of the model."""

from abc import abstractmethod
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy, Strategy
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torchmetrics import Metric
from typing_extensions import override

from litlab.metrics.gathering import gather_rows


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

    @abstractmethod
    def gathered(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return what a checkpoint has of a ``state_dict``. All processes call this, with their parts of it."""

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


def shards(strategy: Strategy) -> bool:
    """Return whether a process may hold a part of the model only: of its weights, gradients or optimizer state."""
    return not isinstance(strategy, SingleDeviceStrategy | DDPStrategy)


def divides_layers(strategy: Strategy) -> bool:
    """Return whether several processes compute a part of a layer each."""
    return getattr(strategy, "tensor_parallel_size", 1) > 1


def data_ranks(trainer: Trainer | None) -> dict[str, Any]:
    """Return the place of this process among those that share the data, as ``rank`` and ``world_size``."""
    if trainer is None or trainer.world_size == 1:
        return {"rank": 0, "world_size": 1}
    strategy: Any = trainer.strategy
    mine = strategy.distributed_sampler_kwargs
    return {"rank": mine["rank"], "world_size": mine["num_replicas"]}


def share_buffers(trainer: Trainer) -> None:
    """Copy the buffers, such as statistics of batch norm, from the first of the processes that share the data."""
    if data_ranks(trainer)["world_size"] == 1:
        return
    group = data_group(trainer)
    first = 0 if group is None else torch.distributed.get_global_rank(group, 0)
    for buffer in trainer.lightning_module.buffers():
        torch.distributed.broadcast(buffer, first, group)


def data_group(trainer: Trainer) -> Any:
    """Return the group of processes that share the data with this one; None: all."""
    return getattr(trainer.strategy, "data_group", None)
