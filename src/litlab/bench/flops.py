"""Floating-point operations: those of a step, and how many a device can do in a second."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from litlab.util.device import synchronize

SIDES = {"cpu": 2048}  # of the matrices that are multiplied to find a device's peak
SIDE = 8192
SECONDS = 0.3
# Words in the names of operations that compute much: one of them that has no formula is reported.
HEAVY = {"rnn", "lstm", "gru", "attention", "conv", "mm", "fft"}
POINTWISE = "_thnn_fused"  # how the names of cells begin whose matrix products are counted apart
RECURRENT = ("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn")


class StepFlops:
    """Count the operations of forward and backward passes, compiled ones too, by the shapes of their matrix products.

    torch's `FlopCounterMode` has no formula for recurrent layers: here a layer takes two operations for each weight and
    position, and twice as many backward. What else has no formula is in `not_counted`.
    """

    def __init__(self) -> None:
        self.total = 0
        self.not_counted: set[str] = set()
        self._modes: ExitStack | None = None

    def start(self) -> None:
        """Count from now on."""
        counter = FlopCounterMode(display=False, custom_mapping=_recurrent())
        watch = _Watch({str(operation) for operation in counter.flop_registry})
        self._modes = ExitStack()
        self._modes.callback(lambda: self._add(counter, watch))
        self._modes.enter_context(torch.compiler.set_stance("force_eager"))
        self._modes.enter_context(counter)
        self._modes.enter_context(watch)

    def stop(self) -> None:
        """Stop counting, if it has been started."""
        if self._modes is not None:
            self._modes.close()
            self._modes = None

    def _add(self, counter: FlopCounterMode, watch: "_Watch") -> None:
        self.total += counter.get_total_flops()
        self.not_counted |= watch.unknown


class _Watch(TorchDispatchMode):
    """Note operations that compute much and have no formula.

    Args:
        known: Those that have one.
    """

    def __init__(self, known: set[str]) -> None:
        super().__init__()
        self.known = known
        self.unknown: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = str(func._overloadpacket)
        name = packet.partition(".")[2]
        if packet not in self.known and HEAVY & set(name.split("_")) and not name.startswith(POINTWISE):
            self.unknown.add(name)
        return func(*args, **(kwargs or {}))


def _recurrent() -> dict[Any, Callable[..., int]]:
    """Return the formulas of recurrent layers, as far as this build of torch has them."""

    def forward(inputs: Tensor, *others: Any, **_: Any) -> int:
        weights = others[:2] if isinstance(others[0], Tensor) else others[0]  # of one layer, or of all
        positions = math.prod(inputs.shape[:-1])  # (time, batch), or all of a packed sequence
        return 2 * positions * sum(weight.numel() for weight in weights if weight.ndim == 2)

    def backward(*arguments: Any, **others: Any) -> int:
        return 2 * forward(*arguments, **others)

    formulas = dict.fromkeys(RECURRENT, forward) | {f"{name}_backward": backward for name in RECURRENT}
    for formula in (forward, backward):
        formula._get_raw = True  # pyright: ignore[reportFunctionMemberAccess] - it takes tensors, not their shapes
    aten = torch.ops.aten
    return {getattr(aten, name): formula for name, formula in formulas.items() if hasattr(aten, name)}


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Return how many operations a second a device does in the product of two large matrices.

    Args:
        device: The device.
        dtype: Of the matrices.
    """
    side = SIDES.get(device.type, SIDE)
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    best, began = math.inf, time.perf_counter()
    while best == math.inf or time.perf_counter() - began < SECONDS:
        synchronize(device)
        start = time.perf_counter()
        torch.mm(left, right)
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * side**3 / best
