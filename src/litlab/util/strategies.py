"""What a strategy does with a model."""

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy


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


def data_group(trainer: Trainer) -> Any:
    """Return the group of processes that share the data with this one; None: all."""
    return getattr(trainer.strategy, "data_group", None)
