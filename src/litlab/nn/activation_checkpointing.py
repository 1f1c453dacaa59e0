"""Blocks of a network that keep no activations for the backward pass, but compute them again."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Buffers = list[tuple[nn.Module, str, Tensor]]


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


def _run(block: nn.Module, before: list[Buffers], *args: Any, **kwargs: Any) -> Any:
    """Run the forward pass of a block, for the first time or again.

    Args:
        block: The block.
        before: Empty at first; gets the buffers as they are then.
        *args: Of the forward pass.
        **kwargs: Of the forward pass.
    """
    forward = partial(type(block).forward, block, *args, **kwargs)
    if torch.compiler.is_compiling():  # the compiler itself sees to it that buffers are updated once
        return forward()
    if not before:
        before.append([(module, name, buffer.clone()) for module, name, buffer in _buffers(block)])
        return forward()
    with _with_buffers([(module, name, buffer.clone()) for module, name, buffer in before[0]]):
        return forward()


@contextmanager
def _with_buffers(buffers: Buffers) -> Iterator[None]:
    """Put other tensors in the place of buffers."""
    own = [(module, name, module._buffers[name]) for module, name, _ in buffers]
    try:
        for module, name, buffer in buffers:
            module._buffers[name] = buffer
        yield
    finally:
        for module, name, buffer in own:
            module._buffers[name] = buffer


def _buffers(block: nn.Module) -> Buffers:
    return [
        (module, name, buffer)
        for module in block.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
