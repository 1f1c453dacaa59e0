"""Blocks of a network that keep no activations for the backward pass, but compute them again."""

from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(block: nn.Module) -> None:
    """Let a block keep its inputs alone, and run its forward pass again when the backward pass gets there.

    The result is the same in every bit: random numbers are drawn again from the same state, and buffers, such as the
    statistics of batch norms, are updated by the first run only. The block is changed in place, so that the names of
    its parameters and their hooks stay as they are; copies of it work by themselves. ``del block.forward`` takes it
    back.

    Args:
        block: Its ``forward`` must not change anything but buffers, nor draw from Python's or numpy's generators.
    """
    block.forward = MethodType(_forward, block)


class _OwnForward(nn.Module):
    """Calls the forward pass that the class of a block has."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.block).forward(self.block, *args, **kwargs)


def _forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    block = _OwnForward(self)
    if not torch.is_grad_enabled():
        return block(*args, **kwargs)
    buffers = {name: buffer.clone() for name, buffer in block.named_buffers()}
    is_first = True

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        if torch.compiler.is_compiling():  # the compiler itself sees to it that buffers are updated once
            return block(*args, **kwargs)
        if is_first:
            is_first = False
            return block(*args, **kwargs)
        # With the buffers that the first run began with; it has updated those of the block.
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        return functional_call(block, copies, args, kwargs)

    return checkpoint(run, *args, use_reentrant=False, **kwargs)
