"""Blocks of a network that keep no activations for the backward pass, but compute them again."""

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(block: nn.Module) -> None:
    """Let a block keep its inputs alone, and run its forward pass again when the backward pass gets there.

    The result is the same in every bit: random numbers are drawn again from the same state, and buffers, such as the
    statistics of batch norms, are updated by the first run only. The block is changed in place, so that the names of
    its parameters and their hooks stay as they are; copies of it work by themselves. `keep_activations` takes it back.

    Args:
        block: Its ``forward`` must not change anything but buffers, nor draw from Python's or numpy's generators.
    """
    block.forward = MethodType(_forward, block)


def keep_activations(block: nn.Module) -> None:
    """Take `checkpoint_activations` back."""
    del block.forward


def _forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return type(self).forward(self, *args, **kwargs)
    return checkpoint(partial(_run, self, []), *args, use_reentrant=False, **kwargs)


def _run(block: nn.Module, runs: list["_BuffersOfFirstRun"], *args: Any, **kwargs: Any) -> Any:
    forward = partial(type(block).forward, block, *args, **kwargs)
    if torch.compiler.is_compiling():  # the compiler itself sees to it that buffers are updated once
        return forward()
    if not runs:
        runs.append(_BuffersOfFirstRun(block))
        return forward()
    with runs[0]:
        return forward()


class _BuffersOfFirstRun:
    """While a block runs again, puts the buffers that the first run began with in the place of its own."""

    def __init__(self, block: nn.Module) -> None:
        owners = [(part._buffers, name, buffer) for part in block.modules() for name, buffer in part._buffers.items()]
        self.before = [(owner, name, buffer.clone()) for owner, name, buffer in owners if buffer is not None]

    def __enter__(self) -> None:
        self.own = [owner[name] for owner, name, _ in self.before]
        for owner, name, buffer in self.before:
            owner[name] = buffer.clone()

    def __exit__(self, *error: object) -> None:
        for (owner, name, _), buffer in zip(self.before, self.own, strict=True):
            owner[name] = buffer
