"""Layers that round as if they were computed in int8, and how much of a network such layers are."""

from importlib import import_module
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LINEAR = (nn.Linear,)
LINEAR_AND_CONVOLUTIONS = (nn.Linear, nn.Conv1d, nn.Conv2d)
LEAST = 0.25  # share of the weights below which quantizing is not worth it


def share_of(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> tuple[float, str]:
    """Return which share of the weights of a network, embeddings and biases aside, is in layers of some kinds.

    Args:
        module: The network.
        kinds: The kinds of layers.

    Returns:
        The share, and the other kind of layer that holds most of the rest; empty where there is none.
    """
    inside, total, others = 0, 0, dict[str, int]()
    for layer in module.modules():
        own = sum(parameter.numel() for parameter in layer.parameters(recurse=False) if parameter.ndim > 1)
        if isinstance(layer, nn.Embedding):
            continue
        total += own
        if isinstance(layer, kinds):
            inside += own
        elif own:
            others[type(layer).__name__] = others.get(type(layer).__name__, 0) + own
    return inside / max(total, 1), max(others, key=others.__getitem__, default="")


class Rounding:
    """Rounds inputs and weights of a layer to 256 steps, and passes gradients on as if it did not.

    Inputs have one scale and zero, from a moving average of their range in training; weights have a scale for each
    output, from their largest value. That is what torchao's quantizer for x86 does, so that training gets used to it
    (Jacob et al. 2018, arXiv:1712.05877). Batch norms need not be folded into the weights before: a factor for an
    output is one for its scale.

    Raises:
        ModuleNotFoundError: torchao is not installed.
    """

    def __init__(self) -> None:
        pt2e: Any = import_module("torchao.quantization.pt2e.fake_quantize")
        observers: Any = import_module("torchao.quantization.pt2e.observer")
        self.inputs: nn.Module = pt2e.FusedMovingAvgObsFakeQuantize(
            observer=observers.MovingAverageMinMaxObserver,
            quant_min=0, quant_max=255, dtype=torch.uint8, qscheme=torch.per_tensor_affine,
        )  # fmt: skip
        self.weights: nn.Module = pt2e.FakeQuantize(
            observer=observers.PerChannelMinMaxObserver,
            quant_min=-128, quant_max=127, dtype=torch.int8, qscheme=torch.per_channel_symmetric, ch_axis=0,
        )  # fmt: skip
        self._observe, self._rest = pt2e.enable_observer, pt2e.disable_observer

    def __call__(self, inputs: Tensor, weight: Tensor, training: bool) -> tuple[Tensor, Tensor]:
        """Return rounded inputs, of any shape, and weights; the range of the inputs is noted in training only."""
        self.inputs.to(inputs.device).apply(self._observe if training else self._rest)
        self.weights.to(weight.device)
        weight = self.weights(weight.float()).to(weight.dtype)
        return self.inputs(inputs.float()).to(inputs.dtype), weight

    def state_dict(self) -> dict[str, Any]:
        """Return the range of the inputs; that of the weights follows from them."""
        return self.inputs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from such a range."""
        self.inputs.load_state_dict(state)


def round_layer(layer: nn.Module, rounding: Rounding) -> None:
    """Let a linear layer or convolution round, in place: the names of its parameters stay as they are.

    Args:
        layer: The layer. `keep_layer` takes it back.
        rounding: Its own.
    """
    object.__setattr__(layer, "rounding", rounding)  # not as a part of it, which a checkpoint would hold
    layer.forward = MethodType(_forward, layer)


def keep_layer(layer: nn.Module) -> None:
    """Take `round_layer` back."""
    del layer.forward, layer.rounding


def _forward(self: Any, inputs: Tensor) -> Tensor:
    inputs, weight = self.rounding(inputs, self.weight, self.training)
    if isinstance(self, nn.Linear):
        return F.linear(inputs, weight, self.bias)
    return self._conv_forward(inputs, weight, self.bias)
