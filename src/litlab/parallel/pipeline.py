"""Pipeline parallelism: micro-batches pass through the stages of a network, forwards and backwards.

torch's own PipelineStage and its schedules need a module for each stage, the shapes of what is
sent, and the loss of each micro-batch within the schedule.
"""

from collections import ChainMap
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from litlab.errors import UserError
from litlab.nn.selection import find_blocks
from litlab.parallel.groups import DataGroups
from litlab.parallel.plan import check_weights, networks
from litlab.types import PositiveInt
from litlab.util.splitmix import GOLDEN, mix, next_number

# Of each micro-batch: what a stage has received, and what it has computed
Passed = list[tuple[Any, Tensor]]


class Pipeline:
    """Let processes compute a network together, each some of its blocks, wherever the network is
    called.

    All processes call it with the same batch, and get the same output. They pass on micro-batches
    as GPipe does (Huang et al. 2019, arXiv:1811.06965): first all forward, then, once the loss of
    the whole batch has told the gradient of the output, all backward. So a loss may be anything.
    1F1B, which keeps activations of fewer micro-batches, begins to go backward before the last one
    has gone forward: it would need a loss of each micro-batch, within the schedule.

    A stage runs the network's own forward pass. In it, blocks of earlier stages return what they
    get, this stage's first block gets what the stage before has sent, and the pass is left where it
    calls the next stage's first block: with what that block would get. What is not in a block, such
    as masks, is computed by each stage for itself. Its gradients are summed over the stages, at the
    end of each backward pass.

    torch's generators are seeded before each micro-batch and before each block. So what stages
    compute alike is alike, and dropout does not depend on how many there are.

    Args:
        network: It returns one tensor with a row for each sample. It is changed: from then on the
            blocks of other stages are on the meta device, and take no memory.
        stage: The number of this process's stage, from 0.
        stages: How many there are; at most as many as blocks.
        microbatches: Parts of a batch that are under way at once; fewer where a batch has fewer
            samples.
        device: Where the process computes.
        group: All processes, on the CPU: they tell each other of tensors without waiting for the
            device.

    Raises:
        UserError: If a weight is in a block and elsewhere, or something around blocks is compiled
            or recomputed.
    """

    def __init__(
        self,
        network: nn.Module,
        stage: int,
        stages: int,
        microbatches: int,
        device: torch.device,
        group: Any,
    ) -> None:
        blocks = find_blocks(network)
        check_weights(network, blocks)
        _check_surroundings(network, list(blocks))
        self.network, self.stage, self.last_stage = network, stage, stages - 1
        self.microbatches, self.device, self.group = microbatches, device, group

        inside = tuple(f"{name}." for name in blocks)
        self.outer_parameters = [
            p for name, p in network.named_parameters() if not name.startswith(inside)
        ]
        numbers = np.array_split(range(len(blocks)), stages)[stage]
        self._first, self._last = numbers[0], numbers[-1]
        self.own_parameters: set[nn.Parameter] = set()
        for number, block in enumerate(blocks.values()):
            intercept(block, partial(self._answer, number))
            if number in numbers:
                self.own_parameters.update(block.parameters())
            else:
                block.to("meta")
        intercept(network, self._run)

    def _run(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        """Return what the network does; tensors with as many rows as the first one are divided."""
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()]
        if not tensors or any(tensor.requires_grad for tensor in tensors):
            raise self._refuse(
                "must be called with tensors of one row per sample, none of which needs a gradient"
            )

        # Micro-batches
        rows = len(tensors[0])
        count = min(self.microbatches, rows)
        parts: list[Any] = []
        for leaf in leaves:
            has_rows = isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == rows
            parts.append(leaf.tensor_split(count) if has_rows else [leaf] * count)
        batches = [tree_unflatten(part, spec) for part in zip(*parts, strict=True)]

        # The last stage has the output of the whole batch; like the others' it is not with channels
        # last.
        passed = self._pass_forward(forward, batches)
        output = None
        kind: list[Any] = [None]  # an empty tensor like the output
        if self.stage == self.last_stage:
            output = torch.cat([computed for _, computed in passed]).detach().contiguous()
            kind = [output.to("meta")]
        dist.broadcast_object_list(kind, self.last_stage, self.group)
        if output is None:
            output = torch.empty_like(kind[0], device=self.device)
        dist.broadcast(output, self.last_stage)

        if len(output) != rows:
            raise self._refuse("must return a tensor of one row per sample")
        if torch.is_grad_enabled():
            output = _Bridge.apply(
                torch.zeros((), requires_grad=True), partial(self._pass_backward, passed), output
            )
        return output

    def run_stage(
        self,
        forward: Callable[..., Any],
        received: Tensor | None,
        seed: int,
        args: Any,
        kwargs: Any,
    ) -> Any:
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
            UserError: If the network doesn't call its blocks in order, or returns something else
                than a tensor.
        """
        # The last one: the block that is to be called
        self._received, self._seed, self._next = received, seed, 0
        self._seed_torch(seed)
        try:
            output = forward(*args, **kwargs)
        except _Left as left:
            return left.args[0]
        if self.stage < self.last_stage or self._next <= self._last:
            raise self._refuse("must call its blocks one after the other")
        if not isinstance(output, Tensor):
            raise self._refuse("must return a tensor of one row per sample")
        return output

    def _answer(
        self, number: int, block: Callable[..., Any], activation: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        """Answer the call of a block, whichever stage it is in."""
        if number != self._next:
            raise self._refuse("must call its blocks one after the other")
        self._next += 1
        if number < self._first:
            return activation
        if number > self._last:
            raise _Left(activation)
        if number == self._first and self._received is not None:
            activation = self._received
        self._seed_torch(next_number(self._seed + number * GOLDEN))
        return block(activation, *args, **kwargs)

    def _seed_torch(self, seed: int) -> None:
        # torch.manual_seed takes 170 µs where there is no GPU
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _refuse(self, reason: str) -> UserError:
        return UserError(
            f"trainer.strategy: with pipeline {type(self.network).__name__} {reason}; use fsdp2"
        )

    def _pass_forward(self, forward: Callable[..., Any], batches: list[Any]) -> Passed:
        passed: Passed = []
        received = None
        seed = int(torch.randint(2**62, ()))
        # Stages draw unlike numbers
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            for number, (args, kwargs) in enumerate(batches):
                if self.stage > 0:
                    kind: list[Any] = [None]  # an empty tensor like the one that is sent
                    dist.recv_object_list(kind, self.stage - 1, self.group)
                    received = self._receive(kind[0], self.stage - 1).requires_grad_()

                output = self.run_stage(forward, received, mix(seed + number), args, kwargs)
                if self.stage < self.last_stage:
                    output = output.contiguous()
                    dist.send_object_list([output.detach().to("meta")], self.stage + 1, self.group)
                    dist.send(output.detach(), self.stage + 1)
                passed.append((received, output))
        return passed

    def _pass_backward(self, passed: Passed, gradient: Tensor) -> None:
        """Compute the gradients of this stage's parameters from that of the output."""
        outer = [parameter for parameter in self.outer_parameters if parameter.requires_grad]
        earlier = [parameter.grad for parameter in outer]
        for parameter in outer:
            parameter.grad = None

        parts = gradient.tensor_split(len(passed))
        for (received, output), part in zip(passed, parts, strict=True):
            if self.stage < self.last_stage:
                part = self._receive(output, self.stage + 1)
            if output.requires_grad:  # not where all up to here is frozen
                torch.autograd.backward(output, part)
            if received is not None:
                dist.send(received.grad, self.stage - 1)

        for parameter, before in zip(outer, earlier, strict=True):
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(gradient)
            parameter.grad = gradient if before is None else before.add_(gradient)

    def _receive(self, like: Tensor, peer: int) -> Tensor:
        tensor = torch.empty_like(like, device=self.device)
        dist.recv(tensor, peer)
        return tensor


class _Bridge(torch.autograd.Function):
    """Joins the autograd graph of the loss, which every process has, to those of the stages."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, backward: Callable[..., None], output: Tensor) -> Tensor:
        ctx.pass_backward = backward
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            ctx.pass_backward(gradient)
        return None, None, None


class _Left(BaseException):
    """Carries what the next stage gets out of the network's forward pass, past whatever it
    catches.
    """


def intercept(module: nn.Module, call: Callable[..., Any]) -> None:
    """Let a function answer the calls of a module; hooks and compiled code are part of the call
    that it is given.

    The module gets a subclass of its class, as FSDP2 does it.

    Args:
        module: The module, changed in place.
        call: Called with what calls the module, and with the arguments.
    """
    module.__class__ = _make_intercepted(type(module))
    vars(module)["_call_of_pipeline"] = call


@cache  # modules of one class must stay so: torch.compile would compile each of them
def _make_intercepted(kind: type[nn.Module]) -> type[nn.Module]:
    def answer(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._call_of_pipeline(partial(kind.__call__, self), *args, **kwargs)

    return type(kind.__name__, (kind,), {"__call__": answer, "__module__": kind.__module__})


def _check_surroundings(network: nn.Module, blocks: list[str]) -> None:
    """Refuse a compiled or recomputed forward pass that would be left in the middle."""
    for name, module in network.named_modules():
        is_around = not name or any(block.startswith(f"{name}.") for block in blocks)
        is_compiled = getattr(module, "_compiled_call_impl", None) is not None
        if is_around and (is_compiled or "forward" in vars(module)):
            raise UserError(
                "trainer.strategy: with pipeline, compile.children and "
                f"activation_checkpointing.blocks must name blocks, such as '*.{blocks[0]}'"
            )


class PipelineStrategy(DataGroups):
    """Pipeline parallelism: all processes form one pipeline, and each holds a part of the network's
        blocks.

    Every process gets the same batches and computes loss, metrics and steps of the whole batch;
    only the network's call is divided, see `Pipeline`. What is not in a block is in every process.

    Args:
        microbatches: Parts of a batch that are under way at once. Of the time,
            ``(processes - 1) / (microbatches + processes - 1)`` is spent waiting.
    """

    def __init__(self, microbatches: PositiveInt = 4) -> None:
        super().__init__(data_parallel_size=1, save_distributed_checkpoint=False)
        self.microbatches = microbatches
        self._own: set[nn.Parameter] = set()  # what this process alone has

    def setup_environment(self) -> None:
        # They have the same samples
        self._tensor_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def divide(self, model: nn.Module) -> None:
        parts = networks(model)
        blocks = {name: len(find_blocks(network)) for name, network in parts.items()}
        if max(blocks.values()) < self.world_size:
            sizes = ", ".join(f"model.{name} has {count}" for name, count in blocks.items())
            raise UserError(
                f"trainer.strategy: a pipeline of {self.world_size} processes needs at least "
                f"{self.world_size} blocks, and {sizes}; add layers or a parallel_plan with more "
                "blocks, set fewer trainer.devices, or use fsdp2"
            )
        self._group: Any = dist.new_group(backend="gloo")
        for name, network in parts.items():
            # A small network beside it is whole in every process
            if blocks[name] >= self.world_size:
                pipeline = Pipeline(
                    network,
                    self.global_rank,
                    self.world_size,
                    self.microbatches,
                    self.root_device,
                    self._group,
                )
                self._own |= pipeline.own_parameters

    def count_holders(self, parameter: Tensor) -> int:
        return 1 if parameter in self._own else self.world_size

    def gathered(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """Return on the first process what all processes have, on the CPU.

        What several have is that of the last one, which alone computes what follows the blocks,
        with its buffers.
        """
        mine = {
            name: value for name, value in state.items() if not getattr(value, "is_meta", False)
        }
        mine = apply_to_collection(mine, Tensor, lambda tensor: tensor.detach().cpu())
        everyone: Any = [None] * self.world_size if self.is_global_zero else None
        dist.gather_object(mine, everyone, group=self._group)
        return {**state, **ChainMap(*reversed(everyone or [mine]))}  # in the order of the model
