"""What a strategy does with a model."""

from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from torch import Tensor


@runtime_checkable
class DividesModel(Protocol):
    """A strategy in which each process has a part of the model, put together for checkpoints."""

    def gathered(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return what a checkpoint has of a ``state_dict``. All processes call this, with their parts of it."""
        ...

    def part_of(self, mine: Tensor, value: Tensor) -> Tensor:
        """Return this process's part of a tensor from a checkpoint, divided as another one is."""
        ...


def gathered(strategy: Strategy, state: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint has of a ``state_dict``: whole tensors, or what all processes write together."""
    return strategy.gathered(state) if isinstance(strategy, DividesModel) else state


def part_of(strategy: Strategy, mine: Tensor, value: Tensor) -> Tensor:
    """Return what a process has of a tensor from a checkpoint.

    Args:
        strategy: The strategy.
        mine: A tensor that is divided in the same way.
        value: The tensor from the checkpoint.
    """
    return strategy.part_of(mine, value) if isinstance(strategy, DividesModel) else value


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
