"""Quantization-aware training: a fit whose layers round as int8 ones will.

Lightning has none any more, and torchao's is for linear layers with scales that depend on the
batch; int8-static export has convolutions and fixed scales.
"""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.func import functional_call

from litlab.callbacks.activation_checkpointing import OwnForward


class QAT(Callback):
    """Let linear layers and convolutions round their inputs and weights to int8 in training.

    Meant to fine-tune a run (``--init_from``) for a few epochs before ``export --quantize
    int8-static``. Training and validation within ``fit`` use the rounded layers, so the monitored
    metric is about that of the int8 model. The weights themselves stay float32 and keep their
    names; ``test`` and ``predict`` use them without rounding. Ranges of the inputs are kept in
    checkpoints. See `litlab.callbacks.qat.Rounding`.
    """

    part_of_step = True

    def __init__(self) -> None:
        self._roundings: dict[str, Rounding] = {}  # by the names of the layers

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        self._roundings = {}
        for name, layer in pl_module.named_modules():
            if type(layer) in LINEAR_AND_CONVOLUTIONS:
                layer.forward = self._roundings[name] = Rounding(layer)

    def state_dict(self) -> dict[str, Any]:
        """Return the ranges by the names of the layers."""
        return {name: rounding.range for name, rounding in self._roundings.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, rounding in self._roundings.items():
            rounding.range = state_dict.get(name)

    def teardown(self, *_: Any, **__: Any) -> None:
        """Leave the module as it was found."""
        for rounding in self._roundings.values():
            vars(rounding.layer).pop("forward", None)

    on_exception = teardown


LINEAR = (nn.Linear,)
LINEAR_AND_CONVOLUTIONS = (nn.Linear, nn.Conv2d)  # what torchao's quantizer for x86 takes


def share_of(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> float:
    """Return which share of the weights of a network, embeddings and biases aside, is in layers of
    some kinds.
    """
    total = chosen = 0
    for layer in module.modules():
        if not isinstance(layer, nn.Embedding):
            size = sum(p.numel() for p in layer.parameters(recurse=False) if p.ndim > 1)
            total += size
            chosen += size * isinstance(layer, kinds)
    return chosen / max(total, 1)


class Rounding:
    """The forward pass of a layer that rounds to int8: ``layer.forward = Rounding(layer)``, and
        ``del layer.forward``.

    Gradients pass as if nothing was rounded. Inputs have one scale and zero, from a moving average
    of their range in training; weights have a scale for each output, from their largest value. That
    is what torchao's quantizer for x86 does, so that training gets used to it (Jacob et al. 2018,
    arXiv:1712.05877). Batch norms need not be folded into the weights before: a factor for an
    output is one for its scale. The names of parameters stay as they are, and checkpoints have no
    more than without.

    Args:
        layer: A linear layer or convolution.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer
        self._own = OwnForward(layer)
        # Least and most of the inputs, (2,); None until there were some in training
        self.range: Tensor | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return what the layer makes of rounded inputs by rounded weights."""
        inputs, weight = self.round_inputs(inputs), round_weight(self.layer.weight)
        return functional_call(self._own, {"block.weight": weight}, inputs)

    def round_inputs(self, inputs: Tensor) -> Tensor:
        """Return inputs of any shape rounded to 0 to 255 steps, one of which is 0; training moves
        their range.
        """
        if self.layer.training:
            current = torch.stack(inputs.detach().float().aminmax())
            self.range = (
                current if self.range is None else self.range.to(current).lerp(current, 0.01)
            )
        if self.range is None:
            return inputs
        least, most = self.range.to(inputs.device).unbind()
        least, most = least.clamp(max=0), most.clamp(min=0)
        scale = ((most - least) / 255).clamp(min=torch.finfo(torch.float32).eps)
        zero = (-least / scale).round().int()
        return torch.fake_quantize_per_tensor_affine(inputs.float(), scale, zero, 0, 255).to(
            inputs.dtype
        )


def round_weight(weight: Tensor) -> Tensor:
    """Round weights of shape (output, ...) to -127 to 127 steps; with -128 the largest would get no
    gradient.
    """
    largest = weight.detach().float().abs().flatten(1).amax(dim=1)
    scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny)
    zero = torch.zeros(len(weight), dtype=torch.int32, device=weight.device)
    return torch.fake_quantize_per_channel_affine(weight.float(), scale, zero, 0, -127, 127).to(
        weight.dtype
    )
