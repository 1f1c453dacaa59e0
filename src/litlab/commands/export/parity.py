"""Does the exported model answer what the run's model does?"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from litlab.artifact.artifact import Arrays
from litlab.data.serving import Serving
from litlab.errors import UserError

CUTS = (1, 3, 6, 13, 45)  # of the first batch, into pieces of 1, 2, 3, 7, 32 and the rest
# Mean difference that the rounding of quantized layers may make, one runtime to the other
ROUNDING = 0.02
EQUAL = 0.95  # share of equal classes, likewise


@dataclass
class Parity:
    """How much two models differ."""

    # Largest difference of an output: of a probability, or in standard deviations of its column
    difference: float
    mean_difference: float  # mean difference, likewise
    # Share of samples with the same most likely class; None where there are no classes
    equal_classes: float | None
    samples: int  # samples that were compared

    def check(self, tolerance: float, is_quantized: bool) -> None:
        """Refuse models that differ by more than rounding.

        With few bits a difference in the last bit of a sum can become one of a whole step.
        """
        if is_quantized:
            has_equal_classes = self.equal_classes is None or self.equal_classes >= EQUAL
            is_good = self.mean_difference <= ROUNDING and has_equal_classes
        else:
            is_good = self.difference <= tolerance
        if not is_good:
            raise UserError(
                f"export: the exported model differs by {self.difference:.3g} "
                f"({self.mean_difference:.3g} on average); nothing was written"
            )


def compare(
    reference: nn.Module, run: Callable[[Arrays], Sequence[np.ndarray]], serving: Serving,
    batches: Iterable[tuple[Tensor, ...]],
) -> Parity:  # fmt: skip
    """Compare a runtime with eager PyTorch, at several batch sizes, and at the ends of every other
    free size.
    """
    unit = serving.unit().double()
    has_classes = serving.outputs[0].name == "probabilities"
    largest, means, is_equal = [], [], []
    with torch.no_grad():
        for raw in _cut(batches, serving):
            expected = reference(*raw)
            answers = [torch.from_numpy(array) for array in run([tensor.numpy() for tensor in raw])]
            errors = [_measure_error(*pair) / unit for pair in zip(expected, answers, strict=True)]
            largest += [error.max() for error in errors]
            means += [error.reshape(len(error), -1).mean(1) for error in errors]
            if has_classes:
                is_equal.append(expected[0].argmax(1) == answers[0].argmax(1))
    mean = torch.cat(means)
    return Parity(
        difference=torch.stack(largest).max().item(),
        mean_difference=mean.mean().item(),
        equal_classes=torch.cat(is_equal).double().mean().item() if has_classes else None,
        samples=len(mean) // len(serving.outputs),
    )


def _measure_error(expected: Tensor, answer: Tensor) -> Tensor:
    """Return how far outputs are apart, beyond two steps of their own type, which large numbers may
    have in float32.

    Where neither is a number they are equal, where one of them is not they are infinitely far
    apart.
    """
    both = expected.isnan() & answer.isnan()
    eps = torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
    steps = 2 * eps * expected.double().abs()
    error = (expected.double() - answer.double()).abs() - steps
    return error.clamp(min=0.0).masked_fill(both, 0.0).nan_to_num(nan=math.inf)


def _cut(batches: Iterable[tuple[Tensor, ...]], serving: Serving) -> Iterator[tuple[Tensor, ...]]:
    """Yield the batches, the first in pieces of several sizes, and two samples with other free axes
    short and long.
    """
    for number, raw in enumerate(batches):
        if number:
            yield raw
            continue
        for axis, most in serving.most.items():
            yield _stretch(raw, serving, axis, 1)
            yield _stretch(raw, serving, axis, most)
        pieces = zip(*(tensor.tensor_split(CUTS) for tensor in raw), strict=True)
        yield from (piece for piece in pieces if len(piece[0]))


def _stretch(raw: tuple[Tensor, ...], serving: Serving, axis: str, size: int) -> tuple[Tensor, ...]:
    stretched = []
    for spec, tensor in zip(serving.inputs, raw, strict=True):
        some = tensor[:2]
        if axis in spec.shape:
            dim = spec.shape.index(axis)
            some = some.index_select(dim, torch.arange(size) % some.shape[dim])
        stretched.append(some)
    return tuple(stretched)
