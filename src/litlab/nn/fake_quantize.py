"""Layers that round as if they were computed in int8, and how much of a network such layers are."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LINEAR = (nn.Linear,)
LINEAR_AND_CONVOLUTIONS = (nn.Linear, nn.Conv2d)  # what torchao's quantizer for x86 takes
LEAST = 0.5  # share of the weights below which quantizing is not worth it


def share_of(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> tuple[float, str]:
    """Return which share of the weights of a network, embeddings and biases aside, is in layers of some kinds.

    Args:
        module: The network.
        kinds: The kinds of layers.

    Returns:
        The share, and the other kind of layer that holds most of the rest; empty where there is none.
    """
    inside, others = 0, Counter[str]()
    for layer in module.modules():
        weights = sum(parameter.numel() for parameter in layer.parameters(recurse=False) if parameter.ndim > 1)
        if isinstance(layer, kinds):
            inside += weights
        elif weights and not isinstance(layer, nn.Embedding):
            others[type(layer).__name__] += weights
    return inside / max(inside + others.total(), 1), max(others, key=others.__getitem__, default="")


class Rounding:
    """The forward pass of a layer that rounds to int8: ``layer.forward = Rounding(layer)``, and ``del layer.forward``.

    Gradients pass as if nothing was rounded. Inputs have one scale and zero, from a moving average of their range in
    training; weights have a scale for each output, from their largest value. That is what torchao's quantizer for x86
    does, so that training gets used to it (Jacob et al. 2018, arXiv:1712.05877). Batch norms need not be folded into
    the weights before: a factor for an output is one for its scale. The names of parameters stay as they are, and
    checkpoints have no more than without.

    Args:
        layer: A linear layer or convolution.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer
        self.range: dict[str, Tensor] = {}  # of the inputs; empty until there were some in training

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return what the layer makes of rounded inputs by rounded weights."""
        inputs, weight, bias = self.round_inputs(inputs), round_weight(self.layer.weight), self.layer.bias
        if isinstance(self.layer, nn.Linear):
            return F.linear(inputs, weight, bias)
        return self.layer._conv_forward(inputs, weight, bias)

    def round_inputs(self, inputs: Tensor) -> Tensor:
        """Return rounded inputs, of any shape; their range is noted in training only."""
        training = self.layer.training
        if not self.range:
            if not training:
                return inputs
            infinity = torch.tensor(torch.inf)
            zero = torch.zeros(1, dtype=torch.int32)
            self.range = {"least": infinity, "most": -infinity, "scale": torch.ones(1), "zero": zero}

        # Copies, as the kernel writes into them, and a compiled backward pass may want to see what was there before.
        self.range = {name: value.to(inputs.device, copy=True) for name, value in self.range.items()}
        flags = torch.tensor([training, True], dtype=torch.int64).to(inputs.device, non_blocking=True)
        # In one kernel: range, scale and rounding. torchao and PyTorch's former quantization use it too.
        rounded = torch.fused_moving_avg_obs_fake_quant(
            inputs.float(), *flags.unbind(), *self.range.values(),
            averaging_const=0.01, quant_min=0, quant_max=255, ch_axis=0,
        )  # fmt: skip
        return rounded.to(inputs.dtype)


def round_weight(weight: Tensor) -> Tensor:
    """Round weights of shape (output, ...) to -127 to 127 steps; with -128 the largest would get no gradient."""
    largest = weight.detach().float().abs().flatten(1).amax(dim=1)
    scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny)
    zero = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)
    return torch.fake_quantize_per_channel_affine(weight.float(), scale, zero, 0, -127, 127).to(weight.dtype)
