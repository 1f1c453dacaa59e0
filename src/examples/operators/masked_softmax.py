"""Softmax of scores over the keys that a mask allows, in one pass over memory."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from examples.operators.build import load
from project.networks.attention import plain_masked_softmax

NAME = "masked_softmax"


class MaskedSoftmax(nn.Module):
    """`masked_softmax`, as a config names it."""

    def forward(self, scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
        """Return the weights, of the shape of the scores."""
        return masked_softmax(scores, mask, scale)


def masked_softmax(scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Softmax of ``scores * scale`` over the last dimension, among the keys that the mask allows.

    A query that may attend to no key gets 0, as does one whose scores are all -inf. The operator
    keeps the weights alone for the backward pass, and has derivatives of any order. It is built at
    the first call. Where that can't be done, and for forward-mode derivatives,
    `plain_masked_softmax` takes its place.

    Args:
        scores: Shape (..., query, key), of floating-point numbers.
        mask: True where a key may be attended to; its shape broadcasts to that of the scores. None:
            everywhere.
        scale: What scores are multiplied by, usually 1 / sqrt(d).

    Returns:
        The weights, of the shape and type of the scores; they sum to 1 over the last dimension, or
        to 0. 16-bit scores are computed with in float32.

    Raises:
        RuntimeError: If the scores are whole numbers, or the mask is not boolean, is on another
            device or does not broadcast to the scores.
    """
    if not is_built(scores.device.type) or _has_tangent(scores):
        return plain_masked_softmax(scores, mask, scale)
    if mask is not None:
        mask = mask.expand_as(scores)
    precise = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    return torch.ops.examples.masked_softmax(precise, mask, scale).to(scores.dtype)


@torch.compiler.assume_constant_result
def is_built(device: str) -> bool:
    """Return whether the operator has a kernel for a type of device; build and load it first if
    need be.

    The compiler asks while it traces, and need not trace the answer.
    """
    if not load(NAME, "cpu") or not load(NAME, device):
        return False
    _register()
    return True


def _has_tangent(scores: Tensor) -> bool:
    """Return whether derivatives are computed forwards: torch.library has no place for them, and
    would give 0.
    """
    return not torch.compiler.is_compiling() and forward_ad.unpack_dual(scores).tangent is not None


@functools.cache
def _register() -> None:
    """Tell torch what it can't read from the kernels: shapes, derivatives, vmap."""
    for operator, backward, keep in (
        (torch.ops.examples.masked_softmax, _backward, _keep_weights),
        (torch.ops.examples.masked_softmax_backward, _double_backward, _keep_inputs),
    ):
        torch.library.register_fake(operator.default, _allocate_like)
        torch.library.register_autograd(operator.default, backward, setup_context=keep)
        torch.library.register_vmap(operator.default, functools.partial(_map_batch, operator))


def _allocate_like(tensor: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _keep_weights(ctx: Any, inputs: tuple[Tensor, Tensor | None, float], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.scale = inputs[2]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (weights,) = ctx.saved_tensors
    return torch.ops.examples.masked_softmax_backward(grad, weights, ctx.scale), None, None


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.scale = inputs[2]


def _double_backward(ctx: Any, grad_grad: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return the derivatives of scale * weights * (grad - sum(grad * weights)) by grad and by
    weights.

    As a function of grad it is its own transpose; that by the weights is composed, so that it has
    derivatives, too.
    """
    grad, weights = ctx.saved_tensors
    by_grad = torch.ops.examples.masked_softmax_backward(grad_grad, weights, ctx.scale)
    centred = grad - (grad * weights).sum(dim=-1, keepdim=True)
    by_weights = ctx.scale * (
        grad_grad * centred - grad * (grad_grad * weights).sum(dim=-1, keepdim=True)
    )
    return by_grad, by_weights, None


def _map_batch(
    operator: Callable[..., Tensor], info: Any, in_dims: tuple[int | None, ...], *inputs: Any
) -> tuple[Tensor, int]:
    """Compute all samples of a vmap at once, with their dimension in front; what all have in common
    is expanded.
    """
    *tensors, scale = inputs
    for place, (tensor, dim) in enumerate(zip(tensors, in_dims, strict=False)):
        if tensor is not None:
            tensors[place] = (
                tensor.expand(info.batch_size, *tensor.shape)
                if dim is None
                else tensor.movedim(dim, 0)
            )
    return operator(*tensors, scale), 0
