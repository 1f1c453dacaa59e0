"""Does the exported model answer what the run's model does?"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.artifact.runtimes import Arrays
from litlab.data.serving import Serving
from litlab.errors import UserError
from litlab.util.progress import progress_bar

CUTS = (1, 2, 3, 7, 32)  # sizes of the first batches
ROUNDING = 0.02  # mean difference that the rounding of quantized layers may make, one runtime to the other
EQUAL = 0.95  # share of equal classes, likewise


@dataclass(frozen=True)
class Parity:
    """How much two models differ.

    Args:
        difference: Largest difference of an output: of a probability, or in standard deviations of its column.
        mean_difference: Mean difference, likewise.
        equal_classes: Share of samples with the same most likely class; None where there are no classes.
        samples: Samples that were compared.
        sizes: Shapes of the first input that were compared.
    """

    difference: float
    mean_difference: float
    equal_classes: float | None
    samples: int
    sizes: list[list[int]]

    def check(self, tolerance: float, quantized: bool) -> None:
        """Refuse models that differ by more than rounding.

        Args:
            tolerance: Largest difference allowed where nothing is quantized.
            quantized: Whether the models compute with few bits, so that a difference in the last bit of a sum can
                become one of a whole step.

        Raises:
            UserError: They do.
        """
        if quantized:
            good = self.mean_difference <= ROUNDING and (self.equal_classes is None or self.equal_classes >= EQUAL)
        else:
            good = self.difference <= tolerance
        if not good:
            allowed = f"{ROUNDING:g} on average" if quantized else f"{tolerance:g}"
            equal = "" if self.equal_classes is None else f", {self.equal_classes:.2%} equal classes"
            raise UserError(
                f"export: the exported model differs from the run's by {self.difference:.3g} "
                f"({self.mean_difference:.3g} on average{equal}), where {allowed} is allowed; nothing was written"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of a manifest."""
        return asdict(self)


def compare(
    reference: nn.Module, run: Callable[[Arrays], Sequence[np.ndarray]], serving: Serving,
    batches: Iterable[tuple[Tensor, ...]], total: int, what: str,
) -> Parity:  # fmt: skip
    """Compare a runtime with eager PyTorch, at several batch sizes, and at the ends of every other free size.

    Args:
        reference: The model in PyTorch; it takes raw inputs.
        run: The exported model.
        serving: Inputs and outputs.
        batches: Raw inputs.
        total: Number of samples in them.
        what: What is compared, for the progress bar.
    """
    unit, classes = serving.unit().double(), serving.outputs[0].name == "probabilities"
    largest, summed, count, equal, samples = 0.0, 0.0, 0, 0, 0
    sizes: list[list[int]] = []
    with progress_bar(total=total, desc=what) as progress, torch.no_grad():
        for raw, counted in _cut(batches, serving):
            want = reference(*raw)
            got = [torch.from_numpy(array) for array in run([tensor.numpy() for tensor in raw])]
            for here, there in zip(want, got, strict=True):
                error = _difference(here, there) / unit
                largest = max(largest, error.max().item())
                if counted:
                    summed, count = summed + error.sum().item(), count + error.numel()
            if list(raw[0].shape) not in sizes and len(sizes) < 12:
                sizes.append(list(raw[0].shape))
            if not counted:
                continue
            if classes:
                equal += int((want[0].argmax(1) == got[0].argmax(1)).sum())
            samples += raw[0].shape[0]
            progress.update(raw[0].shape[0])
    share = equal / samples if classes else None
    return Parity(largest, summed / max(count, 1), share, samples, sizes)


def _difference(here: Tensor, there: Tensor) -> Tensor:
    """Return how far outputs are apart, beyond two steps of their own type, which large numbers may have in float32.

    Where neither is a number they are equal, where one of them is not they are infinitely far apart.
    """
    both = here.isnan() & there.isnan()
    error = (here.double() - there.double()).abs() - 2 * torch.finfo(here.dtype).eps * here.double().abs()
    return error.clamp(min=0.0).masked_fill(both, 0.0).nan_to_num(nan=math.inf)


def _cut(batches: Iterable[tuple[Tensor, ...]], serving: Serving) -> Iterator[tuple[tuple[Tensor, ...], bool]]:
    """Yield the batches, the first in pieces of several sizes, and some with its other free axes short and long.

    The latter are made up, and don't count as samples: False stands beside them.
    """
    for number, raw in enumerate(batches):
        start = 0
        if number == 0:
            yield from ((made, False) for made in _stretched(raw, serving))
        for size in CUTS if number == 0 else ():
            if start + size < len(raw[0]):
                yield tuple(tensor[start : start + size] for tensor in raw), True
                start += size
        yield tuple(tensor[start:] for tensor in raw), True


def _stretched(raw: tuple[Tensor, ...], serving: Serving) -> Iterator[tuple[Tensor, ...]]:
    """Yield the first samples with a free axis as short and as long as can be."""
    for axis, most in serving.most.items():
        for size in (1, most):
            found = []
            for spec, tensor in zip(serving.inputs, raw, strict=True):
                some = tensor[:2]
                if axis in spec.shape:
                    dim = spec.shape.index(axis)
                    here = some.narrow(dim, 0, min(size, some.shape[dim]))
                    missing = size - here.shape[dim]
                    some = F.pad(here, [0, 0] * (here.ndim - 1 - dim) + [0, missing])
                found.append(some)
            yield tuple(found)
