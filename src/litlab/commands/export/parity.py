"""Does the exported model answer what the run's model does?"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

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


@dataclass
class Parity:
    """How much two models differ.

    Args:
        difference: Largest difference of an output: of a probability, or in standard deviations of its column.
        mean_difference: Mean difference, likewise.
        equal_classes: Share of samples with the same most likely class; None where there are no classes.
        samples: Samples that were compared.
        sizes: Shapes of the first input that were compared.
    """

    difference: float = 0.0
    mean_difference: float = 0.0
    equal_classes: float | None = None
    samples: int = 0
    sizes: list[list[int]] = field(default_factory=list)

    def check(self, tolerance: float, is_quantized: bool) -> None:
        """Refuse models that differ by more than rounding.

        Args:
            tolerance: Largest difference allowed where nothing is quantized.
            is_quantized: Whether the models compute with few bits, so that a difference in the last bit of a sum can
                become one of a whole step.

        Raises:
            UserError: They do.
        """
        has_equal_classes = self.equal_classes is None or self.equal_classes >= EQUAL
        if is_quantized:
            is_good = self.mean_difference <= ROUNDING and has_equal_classes
        else:
            is_good = self.difference <= tolerance
        if not is_good:
            allowed = f"{ROUNDING:g} on average" if is_quantized else f"{tolerance:g}"
            raise UserError(
                f"export: the exported model differs by {self.difference:.3g} ({self.mean_difference:.3g} on average), "
                f"where {allowed} is allowed; nothing was written"
            )


def compare(
    reference: nn.Module, run: Callable[[Arrays], Sequence[np.ndarray]], serving: Serving,
    batches: Iterable[tuple[Tensor, ...]], total: int,
) -> Parity:  # fmt: skip
    """Compare a runtime with eager PyTorch, at several batch sizes, and at the ends of every other free size.

    Args:
        reference: The model in PyTorch; it takes raw inputs.
        run: The exported model.
        serving: Inputs and outputs.
        batches: Raw inputs.
        total: Number of samples in them.
    """
    parity, unit = Parity(), serving.unit().double()
    has_classes = serving.outputs[0].name == "probabilities"
    means: list[Tensor] = []
    equal = 0
    with progress_bar(total=total, desc="comparing") as progress, torch.no_grad():
        for raw, is_sample in _cut(batches, serving):
            expected = reference(*raw)
            answers = [torch.from_numpy(array) for array in run([tensor.numpy() for tensor in raw])]
            errors = [_measure_error(*pair) / unit for pair in zip(expected, answers, strict=True)]
            parity.difference = max(parity.difference, *(error.max().item() for error in errors))
            if list(raw[0].shape) not in parity.sizes and len(parity.sizes) < 12:
                parity.sizes.append(list(raw[0].shape))
            if is_sample:
                parity.samples += len(raw[0])
                means += [error.flatten(1).mean(1) for error in errors]
                equal += int((expected[0].argmax(1) == answers[0].argmax(1)).sum())
                progress.update(len(raw[0]))
    parity.mean_difference = torch.cat(means).mean().item()
    parity.equal_classes = equal / parity.samples if has_classes else None
    return parity


def _measure_error(expected: Tensor, answer: Tensor) -> Tensor:
    """Return how far outputs are apart, beyond two steps of their own type, which large numbers may have in float32.

    Where neither is a number they are equal, where one of them is not they are infinitely far apart.
    """
    both = expected.isnan() & answer.isnan()
    steps = 2 * torch.finfo(expected.dtype).eps * expected.double().abs()
    error = (expected.double() - answer.double()).abs() - steps
    return error.clamp(min=0.0).masked_fill(both, 0.0).nan_to_num(nan=math.inf)


def _cut(batches: Iterable[tuple[Tensor, ...]], serving: Serving) -> Iterator[tuple[tuple[Tensor, ...], bool]]:
    """Yield the batches, the first in pieces of several sizes, and some with its other free axes short and long.

    The latter are made up, and don't count as samples: False stands beside them.
    """
    for number, raw in enumerate(batches):
        start = 0
        if number == 0:
            for axis, most in serving.most.items():
                for size in (1, most):
                    yield _stretch(raw, serving, axis, size), False
            for size in CUTS:
                if start + size < len(raw[0]):
                    yield tuple(tensor[start : start + size] for tensor in raw), True
                    start += size
        yield tuple(tensor[start:] for tensor in raw), True


def _stretch(raw: tuple[Tensor, ...], serving: Serving, axis: str, size: int) -> tuple[Tensor, ...]:
    """Return the first two samples with a free axis cut or padded with zeros to a size."""
    stretched = []
    for spec, tensor in zip(serving.inputs, raw, strict=True):
        some = tensor[:2]
        if axis in spec.shape:
            dim = spec.shape.index(axis)
            some = some.narrow(dim, 0, min(size, some.shape[dim]))
            some = F.pad(some, [0, 0] * (some.ndim - 1 - dim) + [0, size - some.shape[dim]])
        stretched.append(some)
    return tuple(stretched)
