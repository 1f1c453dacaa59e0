"""How fast the exported model is, beside PyTorch itself on the same threads."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SIZES = (1, 32)
_SECONDS, _MOST, _LEAST = 1.0, 200, 5  # of measuring one side at one size, and its calls


def latencies(call: Callable[[], object]) -> dict[str, float]:
    """Call a function for some seconds, after three calls that don't count.

    Returns:
        Median and 95th percentile in milliseconds, and the number of calls.
    """
    for _ in range(3):
        call()
    taken: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(taken) < _LEAST or (len(taken) < _MOST and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        taken.append(1e3 * (time.perf_counter() - start))
    p95 = statistics.quantiles(taken, n=20)[-1]
    return {"median_ms": round(statistics.median(taken), 4), "p95_ms": round(p95, 4), "calls": len(taken)}


def of_module(module: nn.Module, raw: tuple[Tensor, ...]) -> dict[str, Any]:
    """Measure a module in PyTorch, by the size of the batch."""

    def call(batch: tuple[Tensor, ...]) -> object:
        with torch.inference_mode():
            return module(*batch)

    return {str(size): latencies(lambda batch=batch: call(batch)) for size, batch in _batches(raw)}


def of_runtime(run: Callable[[Any], object], raw: tuple[Tensor, ...]) -> dict[str, Any]:
    """Measure an exported model, by the size of the batch."""
    found = {}
    for size, batch in _batches(raw):
        arrays = [tensor.numpy() for tensor in batch]
        found[str(size)] = latencies(lambda arrays=arrays: run(arrays))
    return found


def _batches(raw: tuple[Tensor, ...]) -> list[tuple[int, tuple[Tensor, ...]]]:
    """Return batches of `SIZES` of the same samples, again and again where there are too few."""
    count = len(raw[0])
    rows = [torch.arange(size) % count for size in SIZES]
    return [(len(row), tuple(tensor[row].contiguous() for tensor in raw)) for row in rows]
