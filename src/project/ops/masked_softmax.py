"""Softmax of scores over the keys that a mask allows, in one pass over memory."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from project.ops.build import load

NAME = "masked_softmax"


def masked_softmax(scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Softmax of ``scores * scale`` over the last dimension, among the keys that the mask allows.

    A query that may attend to no key gets 0, as does one whose scores are all -inf. The operator keeps the weights
    alone for the backward pass, and has derivatives of any order; forward-mode derivatives are those of
    `plain_masked_softmax`. It is built at the first call. Where that can't be done, `plain_masked_softmax` takes its
    place, and one line says why.

    Args:
        scores: Shape (..., query, key), of floating-point numbers.
        mask: True where a key may be attended to; its shape broadcasts to that of the scores. None: everywhere.
        scale: What scores are multiplied by, usually 1 / sqrt(d).

    Returns:
        The weights, of the shape and type of the scores; they sum to 1 over the last dimension, or to 0. 16-bit scores
        are computed with in float32.

    Raises:
        TypeError: If scores are no floating-point numbers, or the mask is not boolean.
        ValueError: If the mask's shape does not broadcast to that of the scores, or they are on different devices.
    """
    _check(scores, mask)
    if not is_built(scores.device.type) or _has_tangent(scores):
        return plain_masked_softmax(scores, mask, scale)
    if mask is not None and mask.shape[-1] != scores.shape[-1]:  # one value for all keys
        mask = mask.expand(*mask.shape[:-1], scores.shape[-1])
    operator = torch.ops.project.masked_softmax
    if scores.dtype in (torch.float16, torch.bfloat16):
        return operator(scores.float(), mask, scale).to(scores.dtype)
    return operator(scores, mask, scale)


def plain_masked_softmax(scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Return what `masked_softmax` returns, composed of PyTorch's operations: each of them is a pass over memory."""
    scores = scores * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    nothing = (scores == -torch.inf).all(dim=-1, keepdim=True)  # a softmax over no key is not a number
    return scores.masked_fill(nothing, 0.0).softmax(dim=-1).masked_fill(nothing, 0.0)


@torch.compiler.assume_constant_result
def is_built(device: str) -> bool:
    """Return whether the operator has a kernel for a type of device; build and load it first if need be.

    The compiler asks while it traces, and need not trace the answer.
    """
    there = load(NAME, "cpu") and (device == "cpu" or load(NAME, device))
    if there:
        _register()
    return there


def _has_tangent(scores: Tensor) -> bool:
    """Return whether derivatives are computed forwards: torch.library has no place for them, and would give 0."""
    return not torch.compiler.is_compiling() and forward_ad.unpack_dual(scores).tangent is not None


def _check(scores: Tensor, mask: Tensor | None) -> None:
    """Refuse what the operator does not take; with the words of the caller, where a kernel has only its own."""
    if not scores.is_floating_point() or scores.ndim == 0:
        raise TypeError(f"scores are {scores.dtype} of {scores.ndim} dimensions: numbers with a fraction are needed")
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}: it must be torch.bool; add other masks to the scores")
    if mask.device != scores.device:
        raise ValueError(f"mask is on {mask.device}, the scores are on {scores.device}")
    ends = zip(reversed(mask.shape), reversed(scores.shape), strict=False)
    if not 0 < mask.ndim <= scores.ndim or any(own not in (1, size) for own, size in ends):
        raise ValueError(f"mask has shape {tuple(mask.shape)}: it must broadcast to {tuple(scores.shape)}")


@functools.cache
def _register() -> None:
    """Tell torch what it can't read from the kernels: shapes, derivatives, vmap."""
    forward, backward = "project::masked_softmax", "project::masked_softmax_backward"
    torch.library.register_fake(forward, lambda scores, mask, scale: _like(scores))
    torch.library.register_fake(backward, lambda grad, weights, scale: _like(grad))
    torch.library.register_autograd(forward, _backward, setup_context=_keep_weights)
    torch.library.register_autograd(backward, _double_backward, setup_context=_keep_inputs)
    torch.library.register_vmap(forward, _vmap)
    torch.library.register_vmap(backward, _vmap_backward)


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _keep_weights(ctx: Any, inputs: tuple[Tensor, Tensor | None, float], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.scale = inputs[2]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (weights,) = ctx.saved_tensors
    return torch.ops.project.masked_softmax_backward(grad, weights, ctx.scale), None, None


def _keep_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.scale = inputs[2]


def _double_backward(ctx: Any, grad_grad: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return the derivatives of scale * weights * (grad - sum(grad * weights)) by grad and by weights.

    As a function of grad it is its own transpose; that by the weights is composed, so that it has derivatives, too.
    """
    grad, weights = ctx.saved_tensors
    by_grad = torch.ops.project.masked_softmax_backward(grad_grad, weights, ctx.scale)
    centred = grad - (grad * weights).sum(dim=-1, keepdim=True)
    by_weights = ctx.scale * (grad_grad * centred - grad * (grad_grad * weights).sum(dim=-1, keepdim=True))
    return by_grad, by_weights, None


def _in_front(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """Return the tensor with the dimension that vmap maps over in front; made by repetition where it has none."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _vmap(
    info: Any, in_dims: tuple[int | None, int | None, None], scores: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, int]:
    scores = _in_front(scores, in_dims[0], info.batch_size)
    if mask is not None and in_dims[1] is not None:
        mask = mask.movedim(in_dims[1], 0)
        mask = mask.view(mask.shape[0], *[1] * (scores.ndim - mask.ndim), *mask.shape[1:])
    return torch.ops.project.masked_softmax(scores, mask, scale), 0


def _vmap_backward(
    info: Any, in_dims: tuple[int | None, int | None, None], grad: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, int]:
    grad, weights = (
        _in_front(tensor, dim, info.batch_size) for tensor, dim in zip((grad, weights), in_dims, strict=False)
    )
    return torch.ops.project.masked_softmax_backward(grad, weights, scale), 0
