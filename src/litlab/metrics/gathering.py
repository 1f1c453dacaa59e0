"""Gathering the states of metrics from all ranks."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors


def gather_rows(state: Tensor, group: Any = None) -> list[Tensor]:
    """Return the state that each rank has of a metric.

    A rank that has seen no batch has an empty tensor for a state that is a list, and torchmetrics (1.9) can't know the
    type and shape that the other ranks' have; gathering it as it is would fail, or wait forever.

    Args:
        state: This rank's, of any shape; of the other ranks its first dimension may be another one.
        group: Ranks to gather from; None: all.
    """
    empty = state.dim() > 0 and len(state) == 0
    kinds: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(kinds, None if empty else (state.shape[1:], state.dtype), group)
    known = next((kind for kind in kinds if kind is not None), None)
    if empty and known is not None:
        shape, dtype = known
        state = torch.empty(0, *shape, dtype=dtype, device=state.device)
    return gather_all_tensors(state, group)
