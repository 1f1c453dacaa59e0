"""bf16-true and 16-true with the norms in float32."""

from typing import Any

import torch
from lightning.pytorch.plugins import HalfPrecision
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class HalfWithFloat32Norms(HalfPrecision):
    """Lightning's plugin for weights of 16 bits, which leaves normalisation layers as they are.

    Lightning's own converts all weights and buffers. The mean of a batch normalisation then stops moving, as what a
    batch adds is less than the last of bfloat16's 8 bits, and statistics within a layer are sums over many values.
    Here a norm has weights, statistics and arithmetic of float32, and returns the model's 16 bits.

    A norm is a layer with weights or statistics whose class has "Norm" in its name.
    """

    _hooks: tuple[RemovableHandle, ...] = ()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Convert the weights and buffers of all but the norms."""
        norms = [part for part in module.modules() if _is_norm(part)]
        as_they_are = [{name: value.clone() for name, value in norm.state_dict().items()} for norm in norms]
        super().convert_module(module)
        for norm, state in zip(norms, as_they_are, strict=True):
            norm.float().load_state_dict(state)
        self._hooks = tuple(
            hook
            for norm in norms
            for hook in (norm.register_forward_pre_hook(_widen), norm.register_forward_hook(self._narrow))
        )
        return module

    def teardown(self) -> None:
        """Leave the module without hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the hooks to the original: a copy is for another module."""
        return {**vars(self), "_hooks": ()}

    def _narrow(self, norm: nn.Module, inputs: Any, output: Any) -> Any:
        return self.convert_input(output)


def _is_norm(part: nn.Module) -> bool:
    owns = any(True for _ in part.parameters(recurse=False)) or any(True for _ in part.buffers(recurse=False))
    return "Norm" in type(part).__name__ and owns


def _widen(norm: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    halves = (torch.bfloat16, torch.float16)
    return tuple(one.float() if isinstance(one, Tensor) and one.dtype in halves else one for one in inputs)
