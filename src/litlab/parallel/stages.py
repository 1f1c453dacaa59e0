"""Divide the blocks of a network into consecutive groups, one for each process: the stages of a pipeline."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from litlab.errors import UserError, first_line
from litlab.parallel.plan import blocks_of, check_weights, plan_of
from litlab.util.splitmix import GOLDEN, mix

CALL = "_call_of_pipeline"  # of a module whose calls are intercepted
NO_CHAIN = "its forward does not call its blocks one after the other"


class Stage:
    """The part of a network that one process runs, by the network's own forward pass.

    In it, blocks of earlier stages return what they get, this stage's first block gets what the stage before has sent,
    and the forward pass is left where it calls the next stage's first block: with what that block would get. What is
    not in a block, such as masks, is computed by each stage for itself, from the batch.

    The weights of other stages' blocks are on the meta device: they take no memory and get no gradient.

    Where `seed` is set, torch's generators are seeded with it before a micro-batch, and by a block's number before
    each block. So what stages compute alike is alike, and dropout does not depend on how many there are.

    Args:
        network: It is changed: from then on its foreign blocks are empty.
        number: The number of this stage, from 0.
        count: How many stages there are; at most as many as blocks.

    Raises:
        UserError: If a weight is in a block and elsewhere, or something around blocks is compiled or recomputed.
    """

    def __init__(self, network: nn.Module, number: int, count: int) -> None:
        names = blocks_of(network)
        check_weights(network, names)
        _check_surroundings(network, names)
        groups = [[names[index] for index in group] for group in np.array_split(range(len(names)), count)]
        self.network, self.number, self.count = network, number, count
        self.own = groups[number]
        self.foreign = [name for name in names if name not in self.own]
        inside = tuple(f"{name}." for name in names)
        self.shared = [parameter for name, parameter in network.named_parameters() if not name.startswith(inside)]
        self.outer_buffers = [name for name, _ in network.named_buffers() if not name.startswith(inside)]
        self.forward: Callable[..., Any] = network.forward  # what runs the network, with its hooks
        self.seed: int | None = None
        self._received: Tensor | None = None
        self._marking = False  # whether what skipped blocks return is marked
        self._is_fit = self.is_first  # whether it has been looked at what is done with that
        for name in self.foreign:
            network.get_submodule(name).to("meta")
        for name in (name for group in groups[:number] for name in group):
            intercept(network.get_submodule(name), partial(self._skip, names.index(name) + 1))
        for name in self.own:
            intercept(network.get_submodule(name), partial(self._call, names.index(name) + 1))
        later = [name for group in groups[number + 1 :] for name in group]
        for name in later:
            intercept(network.get_submodule(name), self._leave if name == later[0] else self._come_too_early)

    @property
    def is_first(self) -> bool:
        """Whether this stage gets the batch alone."""
        return self.number == 0

    @property
    def is_last(self) -> bool:
        """Whether this stage returns what the network does."""
        return self.number == self.count - 1

    def run(self, received: Tensor | None, args: Any, kwargs: Any) -> Any:
        """Run this stage for a micro-batch.

        Args:
            received: What the stage before has sent; None in the first one.
            args: The network's positional arguments.
            kwargs: The network's keyword arguments.

        Returns:
            What the next stage is sent; in the last stage what the network returns.
        """
        self._received = received
        if self.seed is not None:
            self.seed_torch(self.seed)
        try:
            output = self.forward(*args, **kwargs)
        except _Left as left:
            return left.activation
        if not self.is_last:
            raise self._unfit(NO_CHAIN)
        return output

    def rehearse(self, received: Tensor | None, args: Any, kwargs: Any) -> Any:
        """Do what `run` does, but leave buffers as they are.

        Raises:
            UserError: If this stage needs to know what blocks of other stages compute, besides what it receives.
        """
        buffers = [(buffer, buffer.clone()) for buffer in self.network.buffers() if not buffer.is_meta]
        marked = False
        if not self._is_fit:
            with self._marks():
                marked = _has_nan(self._run_to_own(received, args, kwargs))
        output = self._run_to_own(received, args, kwargs)
        if marked and not _has_nan(output):
            raise self._unfit("it uses what a block returns in other places than the next block")
        self._is_fit = True
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        return output

    def _run_to_own(self, received: Tensor | None, args: Any, kwargs: Any) -> Any:
        """Run this stage; an error before its first block, that the first stage doesn't get, is one of dividing."""
        try:
            return self.run(received, args, kwargs)
        except UserError:
            raise
        except Exception as error:
            if self._received is None:
                raise
            raise self._unfit(f"its forward fails without the blocks before: {first_line(error)}") from error

    def seed_torch(self, seed: int) -> None:
        """Seed the generators of the CPU and of the device that is computed on."""
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)

    @contextmanager
    def without_foreign(self) -> Iterator[None]:
        """Take the foreign blocks out of the network, so that it can be moved to a device."""
        blocks = {name: self.network.get_submodule(name) for name in self.foreign}
        try:
            for name in blocks:
                self.network.set_submodule(name, nn.Identity())
            yield
        finally:
            for name, block in blocks.items():
                self.network.set_submodule(name, block)

    @contextmanager
    def _marks(self) -> Iterator[None]:
        self._marking = True
        try:
            yield
        finally:
            self._marking = False

    def _skip(self, number: int, _: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        first = self._first(args)
        if not self._marking:
            return first
        self._check_follows(number, first)
        # Not a number is what any computation with it is not, either: so a later use of it is found.
        return torch.full_like(first, torch.nan, dtype=torch.promote_types(first.dtype, torch.get_default_dtype()))

    def _call(self, number: int, block: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.seed is not None:
            self.seed_torch(mix((self.seed + number * GOLDEN) % 2**64))
        first, self._received = self._received, None
        if first is None:
            return block(self._first(args), *args[1:], **kwargs)
        if self._marking:
            self._check_follows(number, self._first(args))
        return block(first, *args[1:], **kwargs)

    def _check_follows(self, number: int, first: Tensor) -> None:
        if number > 1 and not _has_nan(first):
            raise self._unfit(NO_CHAIN)

    def _leave(self, _: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        raise _Left(self._first(args))

    def _come_too_early(self, *_: Any, **__: Any) -> None:
        raise self._unfit(NO_CHAIN)

    def _first(self, args: tuple[Any, ...]) -> Tensor:
        if not args or not isinstance(args[0], Tensor):
            raise self._unfit("it calls a block without a tensor as the first argument")
        return args[0]

    def _unfit(self, why: str) -> UserError:
        return UserError(
            f"trainer.strategy: {type(self.network).__name__} can't be divided into stages, as {why}; use "
            "fsdp2, or give it a parallel_plan with other blocks"
        )


class _Left(BaseException):
    """Carries what the next stage gets out of the network's forward pass, past whatever it catches."""

    def __init__(self, activation: Tensor) -> None:
        super().__init__()
        self.activation = activation


def devices_of(device: torch.device) -> list[torch.device]:
    """Return the devices besides the CPU whose random numbers are drawn where one computes."""
    return [device] if device.type == "cuda" else []


def intercept(module: nn.Module, call: Callable[..., Any]) -> None:
    """Let a function answer the calls of a module; hooks and compiled code are part of the call that it is given.

    The module gets a subclass of its class, as FSDP2 does it.

    Args:
        module: The module, changed in place.
        call: Called with what calls the module, and with the arguments.
    """
    setattr(module, CALL, call)
    module.__class__ = _intercepted(type(module))


@cache  # modules of one class must stay so: torch.compile would compile each of them
def _intercepted(kind: type[nn.Module]) -> type[nn.Module]:
    def answer(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, CALL)(partial(kind.__call__, self), *args, **kwargs)

    return type(kind.__name__, (kind,), {"__call__": answer, "__module__": kind.__module__})


def _has_nan(output: Any) -> bool:
    leaves, _ = tree_flatten(output)
    return any(isinstance(leaf, Tensor) and leaf.is_floating_point() and bool(leaf.isnan().any()) for leaf in leaves)


def _check_surroundings(network: nn.Module, blocks: list[str]) -> None:
    for name, module in network.named_modules():
        if not any(block.startswith(f"{name}.") or not name for block in blocks):
            continue
        what = f"{name or type(network).__name__} as a whole, which stages leave in the middle"
        if getattr(module, "_compiled_call_impl", None) is not None:
            raise UserError(
                f"compile.children: with trainer.strategy pipeline it can't be {what}; name its blocks, such as "
                f"'*.{plan_of(network).blocks[0]}'"
            )
        if "forward" in vars(module):
            raise UserError(
                f"activation_checkpointing.blocks: with trainer.strategy pipeline it can't be {what}; name its blocks"
            )
