"""Gathering the states of metrics from all ranks."""

from typing import Any

import torch
from torch import Tensor


def gather_rows(state: Tensor, group: Any = None) -> list[Tensor]:
    """Return the state that each rank has of a metric, of those that have any.

    As objects: of a rank without a sample torchmetrics (1.9) can't know the type and shape of the others' tensors.

    Args:
        state: This rank's, of any shape; of the other ranks its first dimension may be another one.
        group: Ranks to gather from; None: all.
    """
    parts: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(parts, state.cpu(), group)
    return [part.to(state.device) for part in parts if part.numel()] or [state]
