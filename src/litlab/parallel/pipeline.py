"""Pipeline parallelism: micro-batches pass through the stages of a network, forwards and backwards."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributed import P2POp, Work, all_reduce, batch_isend_irecv, broadcast
from torch.utils._pytree import tree_flatten, tree_unflatten

from litlab.errors import UserError
from litlab.parallel.passes import Passes
from litlab.parallel.stages import Stage, devices_of, intercept
from litlab.util.splitmix import mix

KEPT = 32  # kinds of batches whose passes are kept: those of torch 2.10 hold buffers for all that they receive

Outputs = tuple[Tensor, ...]


class Pipeline:
    """Let the processes compute a network together, each one stage of it, wherever the network is called.

    All processes call it with the same batch, and get the same output. They pass on micro-batches as GPipe does (Huang
    et al. 2019, arXiv:1811.06965): first all forward, then, once the loss of the whole batch has told the gradient of
    the output, all backward. So a loss may be anything. 1F1B, which keeps activations of fewer micro-batches, begins to
    go backward before the last one has gone forward: it would need a loss of each micro-batch, within the schedule.

    Gradients of what is outside of the blocks are summed over the stages, at the end of each backward pass.

    Args:
        stage: This process's part of the network, whose calls are taken over.
        microbatches: Parts of a batch that are under way at once; fewer where a batch has fewer samples.
        device: Where the process computes.
    """

    def __init__(self, stage: Stage, microbatches: int, device: torch.device) -> None:
        self.stage, self.microbatches, self.device = stage, microbatches, device
        self._idle: OrderedDict[object, list[Passes]] = OrderedDict()
        intercept(stage.network, self._run)

    def _run(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what the network does; tensors with as many rows as the first one are divided."""
        self.stage.forward = forward
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() and len(leaf)]
        if not tensors or any(tensor.requires_grad for tensor in tensors):
            raise UserError(
                f"trainer.strategy: with pipeline {type(self.stage.network).__name__} must be called with tensors of "
                "one row per sample, none of which needs a gradient; use fsdp2"
            )
        rows = len(tensors[0])
        sizes = [len(part) for part in torch.arange(rows).tensor_split(min(self.microbatches, rows))]
        parts = [leaf.split(sizes) if _has_rows(leaf, rows) else [leaf] * len(sizes) for leaf in leaves]
        batches = [tree_unflatten(part, spec) for part in zip(*parts, strict=True)]
        trains = torch.is_grad_enabled() and any(p.requires_grad for p in self.stage.network.parameters())
        turns: list[tuple[Passes, int, Any]] = []
        for size, group in groupby(zip(sizes, batches, strict=True), lambda pair: pair[0]):  # they differ by one
            alike = [batch for _, batch in group]
            passes = self._take(alike[0], len(alike), size, trains)
            turns += [(passes, number, batch) for number, batch in enumerate(alike)]
        results = self._forward(turns)
        outputs = self._share(turns, results, rows)
        if trains:
            backward = partial(self._backward, turns, results, sizes)
            outputs = _Bridge.apply(torch.zeros((), requires_grad=True), backward, *outputs)
        else:
            self._give_back(turns)
        return tree_unflatten(list(outputs), turns[0][0].spec)

    def _forward(self, turns: Sequence[tuple[Passes, int, Any]]) -> list[Outputs]:
        results: list[Outputs] = []
        sends: list[Work] = []
        seed = int(torch.randint(2**62, ())) if self.stage.network.training else None
        with torch.random.fork_rng(devices_of(self.device), enabled=seed is not None):  # stages draw unlike numbers
            for turn, (passes, number, batch) in enumerate(turns):
                self.stage.seed = None if seed is None else mix(seed + turn)
                _wait(_start(passes.stage.get_fwd_recv_ops(number)))
                results.append(passes.forward(number, batch))
                sends += _start(passes.stage.get_fwd_send_ops(number))
        _wait(sends)
        return results if self.stage.is_last else []

    def _share(self, turns: Sequence[tuple[Passes, int, Any]], results: list[Outputs], rows: int) -> Outputs:
        """Return the output for the whole batch, which the last stage has, in all processes."""
        last = self.stage.count - 1
        if results:
            whole = (torch.cat([part.detach() for part in parts]) for parts in zip(*results, strict=True))
            outputs = tuple(output.contiguous() for output in whole)  # not with channels last, as the others'
        else:
            kinds = turns[0][0].outputs
            outputs = tuple(torch.empty((rows, *shape[1:]), dtype=dtype, device=self.device) for shape, dtype in kinds)
        for output in outputs:
            broadcast(output, last)
        return outputs

    def _backward(self, turns: list[Any], results: list[Outputs], sizes: list[int], gradients: Outputs) -> None:
        """Compute the gradients of this stage's parameters from those of the output."""
        shared = [parameter for parameter in self.stage.shared if parameter.requires_grad]
        before = [parameter.grad for parameter in shared]
        for parameter in shared:
            parameter.grad = None
        sends: list[Work] = []
        parts = list(zip(*(gradient.split(sizes) for gradient in gradients), strict=True))
        for turn, (passes, number, _) in enumerate(turns):
            loss = _product(results[turn], parts[turn]) if results else None
            _wait(_start(passes.stage.get_bwd_recv_ops(number)))
            passes.stage.backward_one_chunk(number, loss=loss)
            sends += _start(passes.stage.get_bwd_send_ops(number))
        _wait(sends)
        self._sum(shared, turns[0][0])
        for parameter, gradient in zip(shared, before, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else gradient.add_(parameter.grad)
        self._give_back(turns)
        turns.clear()
        results.clear()

    def _sum(self, parameters: list[torch.nn.Parameter], passes: Passes) -> None:
        """Sum gradients over the stages; what has none in any stage keeps none, so that no optimizer changes it."""
        mine = [parameter.grad is not None for parameter in parameters]
        if passes.used is None:
            flags = torch.tensor(mine, dtype=torch.int32, device=self.device)
            all_reduce(flags)
            passes.used = flags.bool().tolist()
        if any(has and not used for has, used in zip(mine, passes.used, strict=True)):
            raise UserError(
                f"trainer.strategy: {type(self.stage.network).__name__} uses a weight outside of its blocks in some "
                "batches only, whose gradient pipeline can't sum; use fsdp2"
            )
        works: list[Any] = []
        for parameter, used in zip(parameters, passes.used, strict=True):
            if used:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                works.append(all_reduce(parameter.grad, async_op=True))
        _wait(works)

    def _take(self, batch: Any, count: int, size: int, trains: bool) -> Passes:
        leaves, spec = tree_flatten(batch)
        kinds = tuple((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else _kind(leaf) for leaf in leaves)
        kind = self.device.type
        autocast = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind)
        learning = trains and tuple(parameter.requires_grad for parameter in self.stage.shared)  # some may be unfrozen
        mode = (learning, self.stage.network.training, torch.is_inference_mode_enabled(), autocast)
        key = (repr(spec), kinds, count, mode)
        idle = self._idle.get(key)
        return idle.pop() if idle else Passes(self.stage, batch, count, size, trains, self.device, key)

    def _give_back(self, turns: Sequence[tuple[Passes, int, Any]]) -> None:
        for passes in {id(passes): passes for passes, _, _ in turns}.values():
            passes.stage.clear_runtime_states()
            self._idle.setdefault(passes.key, []).append(passes)
            self._idle.move_to_end(passes.key)
        while len(self._idle) > KEPT:
            self._idle.popitem(last=False)


def _kind(argument: Any) -> Any:
    """Return what is alike in all processes and batches for one kind of argument; an address in memory is not."""
    return argument if isinstance(argument, int | float | str | None) else type(argument)


class _Bridge(torch.autograd.Function):
    """Joins the autograd graph of the loss, which every process has, to those of the stages."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, backward: Callable[[Outputs], None], *outputs: Tensor) -> Outputs:
        ctx.backward_of_stages = backward
        ctx.mark_non_differentiable(*[output for output in outputs if not output.is_floating_point()])
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            ctx.backward_of_stages(gradients)
        return (None, None, *[None for _ in gradients])


def _product(outputs: Outputs, gradients: Outputs) -> Tensor:
    """Return a number whose gradient, as a function of the outputs, is the one that is given."""
    pairs = [(out, gradient) for out, gradient in zip(outputs, gradients, strict=True) if out.requires_grad]
    return torch.stack([(out * gradient).sum().float() for out, gradient in pairs]).sum()


def _has_rows(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == rows


def _start(operations: list[P2POp]) -> list[Work]:
    return batch_isend_irecv(operations) if operations else []


def _wait(works: list[Work]) -> None:
    for work in works:
        work.wait()
