"""The square of ReLU as an activation, with a backward pass of its own that needs the output
alone.
"""

from typing import Any

import torch
from torch import Tensor, nn


class SquaredReLUFunction(torch.autograd.Function):
    """relu(x)² elementwise; its derivative is 2 relu(x), which is 2 sqrt(output).

    ``x.relu().square()`` keeps relu(x) for the backward pass. Here the output is kept, and the
    linear layer behind an activation keeps that anyway: one tensor of the size of the hidden layer
    less.

    There is no ``jvp``: torch.compile refuses functions that have one.
    """

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Return relu(x)², of the shape of x."""
        # Not in place: torch.compile of torch 2.11 then takes the gradient for 0, without a word.
        return x.relu().square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep what `backward` needs."""
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradient by x from that by the output; all three have one shape."""
        (output,) = ctx.saved_tensors
        return SquaredReLUGradient.apply(grad, output)

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: tuple[int | None], x: Tensor
    ) -> tuple[Tensor, int | None]:
        """Work on all samples at once: what is elementwise needs no loop, the batch stays where it
        is.
        """
        return SquaredReLUFunction.apply(x), in_dims[0]


class SquaredReLUGradient(torch.autograd.Function):
    """2 sqrt(output) grad, the backward pass of `SquaredReLUFunction`.

    It is a function of its own because its derivative by the output is infinite at 0. Autograd
    would compute 0 times infinity there, which is not a number; the derivative of the whole, 2 grad
    where x > 0 and 0 elsewhere, is finite.
    """

    generate_vmap_rule = True  # torch maps each of its operations

    @staticmethod
    def forward(grad: Tensor, output: Tensor) -> Tensor:
        """Return the gradient by x, of the shape of the two."""
        # output / sqrt(output): half of the outputs are 0, and there torch's sqrt takes five times
        # as long on CPUs.
        tiny = torch.finfo(output.dtype).tiny
        root = output.clamp(min=tiny).rsqrt_().mul_(output)
        return (root * grad).mul_(2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep both inputs."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_grad: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the gradients by grad and by output; of plain operations, so that it has
        derivatives, too.
        """
        grad, output = ctx.saved_tensors
        positive = output > 0
        root = torch.where(positive, output, 1.0).rsqrt()
        by_output = torch.where(positive, grad_grad * grad * root, 0.0)
        return SquaredReLUGradient.apply(grad_grad, output), by_output


class SquaredReLU(nn.Module):
    """relu(x)² elementwise, the activation of Primer (So et al. 2021, arXiv:2109.08668).

    In float16 inputs below .008 get too small a gradient, because their squares have lost digits
    there.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(x)², of the shape of x."""
        return SquaredReLUFunction.apply(x)
