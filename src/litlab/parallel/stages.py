"""Divide the blocks of a network into consecutive groups, one for each process: the stages of a pipeline."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.nn.selection import find_blocks
from litlab.parallel.plan import check_weights
from litlab.util.splitmix import GOLDEN, mix

CALL = "_call_of_pipeline"  # of a module whose calls are intercepted


class Stage:
    """The part of a network that one process runs, by the network's own forward pass.

    In it, blocks of earlier stages return what they get, this stage's first block gets what the stage before has sent,
    and the forward pass is left where it calls the next stage's first block: with what that block would get. What is
    not in a block, such as masks, is computed by each stage for itself, from the batch.

    The weights of other stages' blocks are on the meta device: they take no memory and get no gradient.

    torch's generators are seeded before each micro-batch and before each block. So what stages compute alike is alike,
    and dropout does not depend on how many there are.

    Args:
        network: It is changed: from then on its foreign blocks are empty.
        number: The number of this stage, from 0.
        count: How many stages there are; at most as many as blocks.

    Raises:
        UserError: If a weight is in a block and elsewhere, or something around blocks is compiled or recomputed.
    """

    def __init__(self, network: nn.Module, number: int, count: int) -> None:
        blocks = find_blocks(network)
        check_weights(network, blocks)
        _check_surroundings(network, list(blocks))
        self.network = network
        self.is_first, self.is_last = number == 0, number == count - 1
        self._forward: Callable[..., Any] = network.forward
        self._received: Tensor | None = None
        self._seed = 0
        self._next = 0  # block that is to be called

        group = np.array_split(range(len(blocks)), count)[number]
        self._first, self._last = group[0], group[-1]
        self.own_parameters: set[nn.Parameter] = set()
        for place, block in enumerate(blocks.values()):
            intercept(block, partial(self._answer, place))
            if place in group:
                self.own_parameters.update(block.parameters())
            else:
                block.to("meta")

        inside = tuple(f"{name}." for name in blocks)
        self.outer_parameters = [p for name, p in network.named_parameters() if not name.startswith(inside)]

    def run(self, forward: Callable[..., Any], received: Tensor | None, seed: int, args: Any, kwargs: Any) -> Any:
        """Run this stage for a micro-batch.

        Args:
            forward: What runs the network, with its hooks.
            received: What the stage before has sent; None in the first one.
            seed: Of the random numbers, the same in all stages.
            args: The network's positional arguments.
            kwargs: The network's keyword arguments.

        Returns:
            What the next stage is sent; in the last stage what the network returns.

        Raises:
            UserError: If the network doesn't call its blocks in order.
        """
        self._received, self._seed, self._next = received, seed, 0
        torch.manual_seed(seed)
        try:
            output = forward(*args, **kwargs)
        except _Left as left:
            return left.activation
        if not self.is_last or self._next <= self._last:
            raise self._refuse()
        return output

    def _answer(self, place: int, block: Callable[..., Any], activation: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Answer the call of a block, whichever stage it is in."""
        if place != self._next:
            raise self._refuse()
        self._next += 1
        if place < self._first:
            return activation
        if place > self._last:
            raise _Left(activation)
        if place == self._first and self._received is not None:
            activation = self._received
        torch.manual_seed(mix((self._seed + (place + 1) * GOLDEN) % 2**64))
        return block(activation, *args, **kwargs)

    def _refuse(self) -> UserError:
        return UserError(
            f"trainer.strategy: {type(self.network).__name__} can't be divided into stages, as its forward does not "
            "call its blocks one after the other; use fsdp2, or give it a parallel_plan with other blocks"
        )


class _Left(BaseException):
    """Carries what the next stage gets out of the network's forward pass, past whatever it catches."""

    def __init__(self, activation: Tensor) -> None:
        super().__init__()
        self.activation = activation


def intercept(module: nn.Module, call: Callable[..., Any]) -> None:
    """Let a function answer the calls of a module; hooks and compiled code are part of the call that it is given.

    The module gets a subclass of its class, as FSDP2 does it.

    Args:
        module: The module, changed in place.
        call: Called with what calls the module, and with the arguments.
    """
    setattr(module, CALL, call)
    module.__class__ = _make_intercepted(type(module))


@cache  # modules of one class must stay so: torch.compile would compile each of them
def _make_intercepted(kind: type[nn.Module]) -> type[nn.Module]:
    def answer(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, CALL)(partial(kind.__call__, self), *args, **kwargs)

    return type(kind.__name__, (kind,), {"__call__": answer, "__module__": kind.__module__})


def _check_surroundings(network: nn.Module, blocks: list[str]) -> None:
    """Refuse a compiled or recomputed forward pass that would be left in the middle."""
    for name, module in network.named_modules():
        is_around = not name or any(block.startswith(f"{name}.") for block in blocks)
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        if is_around and (is_compiled or "forward" in vars(module)):
            key = "compile.children" if is_compiled else "activation_checkpointing.blocks"
            raise UserError(
                f"{key}: with trainer.strategy pipeline it can't be {name or type(network).__name__} as a whole, which "
                f"stages leave in the middle; name its blocks, such as '*.{blocks[0]}'"
            )
