"""Who this process is among those of a run, which of them share the data, and what they gather."""

import os
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from torch import Tensor

# The rank that a launcher gives a process: torchrun, Lightning, SLURM, and LSF. The first of them
# counts: LOCAL_RANK is that within a machine, and SLURM may have started torchrun.
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")


def is_first_process() -> bool:
    """Return whether this process of a run writes files, and was not launched as a further rank.

    From what launchers say, as there may be no Trainer yet.
    """
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    return rank == "0" and os.environ.get("NODE_RANK", "0") == "0"


def divides_model(strategy: Strategy) -> bool:
    """Return whether a process may hold a part of the model only: of its weights, gradients or
    optimizer state.
    """
    return not isinstance(strategy, SingleDeviceStrategy | DDPStrategy)


# Processes that share layers have the same samples: data is shared among groups of such processes.


def data_ranks(trainer: Trainer | None) -> dict[str, Any]:
    """Return the place of this process among those that share the data, as ``rank`` and
    ``world_size``.
    """
    if trainer is None or trainer.world_size == 1:
        return {"rank": 0, "world_size": 1}
    strategy: Any = trainer.strategy
    mine = strategy.distributed_sampler_kwargs
    return {"rank": mine["rank"], "world_size": mine["num_replicas"]}


def _get_data_group(trainer: Trainer) -> Any:
    """Return the group of the processes that share the data with this one; None: all."""
    return getattr(trainer.strategy, "data_group", None)


def share_buffers(trainer: Trainer) -> None:
    """Copy the buffers, such as statistics of batch norm, from the first of the processes that
    share the data.
    """
    if data_ranks(trainer)["world_size"] == 1:
        return
    for buffer in trainer.lightning_module.buffers():
        torch.distributed.broadcast(buffer, group=_get_data_group(trainer), group_src=0)


def gather_rows(trainer: Trainer, rows: Tensor) -> Tensor:
    """Return the rows of all that share the data, in the order of the ranks. Call it on every rank.

    Args:
        trainer: The trainer whose ranks they are.
        rows: Shape (rows, ...) on any device; the number of rows may differ between ranks.

    Returns:
        Shape (all rows, ...), on the CPU.
    """
    rows = rows.cpu()
    if trainer.world_size == 1:
        return rows
    return torch.cat(gather_states(rows, _get_data_group(trainer)))


def gather_states(state: Tensor, group: Any = None) -> list[Tensor]:
    """Return the state that each rank has of a metric, of those that have any: a ``dist_sync_fn``.

    As objects: of a rank without a sample torchmetrics (1.9) can't know the type and shape of the
    others' tensors.

    Args:
        state: This rank's, of any shape; of the other ranks its first dimension may be another one.
        group: Ranks to gather from; None: all.
    """
    states: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(states, state.cpu(), group)
    return [other.to(state.device) for other in states if other.numel()] or [state]
