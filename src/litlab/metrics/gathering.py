"""Gathering the states of metrics from all ranks."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors


def gather_rows(state: Tensor, group: Any = None) -> list[Tensor]:
    """Return the state that each rank has of a metric.

    A rank without a sample has an empty tensor, of which torchmetrics (1.9) can't know the other ranks' type and shape;
    gathering it as it is would fail, or wait forever.

    Args:
        state: This rank's, of any shape; of the other ranks its first dimension may be another one.
        group: Ranks to gather from; None: all.
    """
    kinds: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(kinds, (state.shape[1:], state.dtype) if state.numel() else None, group)
    shape, dtype = next(filter(None, kinds), (state.shape[1:], state.dtype))
    if state.numel() == 0:
        state = torch.empty(0, *shape, dtype=dtype, device=state.device)
    return gather_all_tensors(state, group)
