"""Pipeline parallelism: micro-batches pass through the stages of a network, forwards and backwards.

torch's own PipelineStage and its schedules need a module for each stage, the shapes of what is sent, and the loss of
each micro-batch within the schedule.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from litlab.errors import UserError
from litlab.parallel.stages import Stage, intercept
from litlab.util.splitmix import mix

Passed = tuple[Tensor | None, list[Tensor]]  # of a micro-batch: what a stage has received, and what it has computed


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
        group: All processes, on the CPU: they tell each other of tensors without waiting for the device.
    """

    def __init__(self, stage: Stage, microbatches: int, device: torch.device, group: Any) -> None:
        self.stage, self.microbatches, self.device, self.group = stage, microbatches, device, group
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        intercept(stage.network, self._run)

    def _run(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return what the network does; tensors with as many rows as the first one are divided."""
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() and len(leaf)]
        if not tensors or any(tensor.requires_grad for tensor in tensors):
            raise self._refuse("must be called with tensors of one row per sample, none of which needs a gradient")

        # Micro-batches
        rows = len(tensors[0])
        sizes = [len(part) for part in torch.arange(rows).tensor_split(min(self.microbatches, rows))]
        parts: list[Sequence[Any]] = []
        for leaf in leaves:
            has_rows = isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == rows
            parts.append(leaf.split(sizes) if has_rows else [leaf] * len(sizes))
        batches = [tree_unflatten(part, spec) for part in zip(*parts, strict=True)]

        passed, spec = self._pass_forward(forward, batches, sizes)
        outputs, spec = self._share([mine for _, mine in passed], spec)
        if any(len(output) != rows for output in outputs):
            raise self._refuse("must return tensors of one row per sample")
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.stage.network.parameters()):
            backward = partial(self._pass_backward, passed, sizes)
            outputs = _Bridge.apply(torch.zeros((), requires_grad=True), backward, *outputs)
        return tree_unflatten(outputs, spec)

    def _refuse(self, reason: str) -> UserError:
        return UserError(f"trainer.strategy: with pipeline {type(self.stage.network).__name__} {reason}; use fsdp2")

    def _pass_forward(
        self, forward: Callable[..., Any], batches: list[Any], sizes: list[int]
    ) -> tuple[list[Passed], Any]:
        passed: list[Passed] = []
        sends: list[Any] = []
        kinds: list[Any] = [None]  # an empty tensor like those that are sent, of micro-batches of one size
        received, spec = None, None
        seed = int(torch.randint(2**62, ()))
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):  # stages draw unlike numbers
            for number, (args, kwargs) in enumerate(batches):
                is_new = number == 0 or sizes[number] != sizes[number - 1]
                if not self.stage.is_first:
                    if is_new:
                        dist.recv_object_list(kinds, self.rank - 1, self.group)
                    received = self._receive(kinds[0], self.rank - 1).requires_grad_(torch.is_grad_enabled())

                output = self.stage.run(forward, received, mix(seed + number), args, kwargs)
                if self.stage.is_last:
                    outputs, spec = tree_flatten(output)
                else:
                    if torch.is_grad_enabled() and not output.requires_grad:  # where all before is frozen
                        output = output.detach().requires_grad_()
                    outputs = [output.contiguous()]
                    if is_new:
                        dist.send_object_list([outputs[0].detach().to("meta")], self.rank + 1, self.group)
                    sends.append(dist.isend(outputs[0].detach(), self.rank + 1))
                passed.append((received, outputs))
        for send in sends:
            send.wait()
        return passed, spec

    def _share(self, parts: list[list[Tensor]], spec: Any) -> tuple[list[Tensor], Any]:
        """Return the output for the whole batch, which the last stage has, in all processes."""
        outputs: list[Tensor] = []
        if self.stage.is_last:  # like the others' not with channels last
            outputs = [torch.cat(leaves).detach().contiguous() for leaves in zip(*parts, strict=True)]
        kinds: list[Any] = [spec, [output.to("meta") for output in outputs]]
        dist.broadcast_object_list(kinds, self.last, self.group)
        if not self.stage.is_last:
            outputs = [torch.empty_like(kind, device=self.device) for kind in kinds[1]]
        for output in outputs:
            dist.broadcast(output, self.last)
        return outputs, kinds[0]

    def _pass_backward(self, passed: list[Passed], sizes: list[int], gradients: Sequence[Tensor]) -> None:
        """Compute the gradients of this stage's parameters from those of the output."""
        outer = [parameter for parameter in self.stage.outer_parameters if parameter.requires_grad]
        earlier = [parameter.grad for parameter in outer]
        for parameter in outer:
            parameter.grad = None

        sends: list[Any] = []
        parts = zip(*(gradient.split(sizes) for gradient in gradients), strict=True)
        for (received, outputs), part in zip(passed, parts, strict=True):
            if not self.stage.is_last:
                part = [self._receive(outputs[0], self.rank + 1)]
            pairs = [pair for pair in zip(outputs, part, strict=True) if pair[0].requires_grad]
            torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
            if received is not None:
                assert received.grad is not None
                sends.append(dist.isend(received.grad, self.rank - 1))
        for send in sends:
            send.wait()

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
    def forward(ctx: Any, _: Tensor, backward: Callable[..., None], *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.pass_backward = backward
        ctx.mark_non_differentiable(*[output for output in outputs if not output.is_floating_point()])
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.enable_grad():
            ctx.pass_backward(gradients)
        return (None, None, *[None for _ in gradients])
