"""The gradient noise scale over a run: estimated, smoothed, put into words and drawn."""

import math
from typing import TYPE_CHECKING, NamedTuple

from litlab.callbacks.gradient_moments import Moments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECAY = 0.9  # of the averages, from one measurement to the next


class Point(NamedTuple):
    """The averages after a measurement.

    Attributes:
        step: Optimizer steps taken before it.
        batch: Samples of an optimizer step: of all ranks and accumulated batches.
        grad_sq: Squared norm of the true gradient.
        trace: Trace of the covariance of the samples' gradients.
    """

    step: int
    batch: int
    grad_sq: float
    trace: float

    @property
    def noise_scale(self) -> float:
        """Their ratio, in samples; NaN where the gradient is lost in the noise."""
        return self.trace / self.grad_sq if self.grad_sq > 0 else math.nan


def estimates(moments: Moments) -> tuple[float, float]:
    """Return unbiased estimates of the squared norm of the true gradient, and of the trace of the covariance.

    Appendix A.1 of McCandlish et al. 2018 (arXiv:1812.06162), with a part as the small batch and all of them as the
    large one. The first may be negative.

    Args:
        moments: Of two parts or more.
    """
    part_sq, mean_sq, size, parts = moments
    grad_sq = (parts * mean_sq - part_sq) / (parts - 1)
    trace = (part_sq - mean_sq) * size * parts / (parts - 1)
    return grad_sq, trace


def next_point(points: list[Point], step: int, batch: int, grad_sq: float, trace: float) -> Point:
    """Return the point of a measurement: exponential averages over it and those before, without the bias to a start.

    Args:
        points: Those before.
        step: As of `Point`.
        batch: As of `Point`.
        grad_sq: The estimate of this step.
        trace: The estimate of this step.
    """
    weight = (1 - DECAY) / (1 - DECAY ** (len(points) + 1))
    if points:
        grad_sq = points[-1].grad_sq + weight * (grad_sq - points[-1].grad_sq)
        trace = points[-1].trace + weight * (trace - points[-1].trace)
    return Point(step, batch, grad_sq, trace)


def in_words(point: Point) -> str:
    """Return what the last point says about the batch size, by the paper's model of a training.

    With batches of B samples it takes S (1 + N / B) steps to a loss, where S is the fewest and N the noise scale
    (equation 2.11 of the paper), each step with its best learning rate.

    Args:
        point: The last one.
    """
    noise_scale, batch = point.noise_scale, point.batch
    if math.isnan(noise_scale):
        return f"too large to tell at the end: the gradient is lost in the noise of batches of {batch:,}"
    steps = (1 + noise_scale / (2 * batch)) / (1 + noise_scale / batch)
    if noise_scale > batch:
        where = f"above the batch size of {batch:,}: larger batches would still save steps"
    else:
        where = f"below the batch size of {batch:,}: larger batches would save few steps"
    rounded = float(f"{noise_scale:.2g}")
    return (
        f"{rounded:,.{0 if rounded >= 10 else 1}f} at the end, {where}. By the model of McCandlish et al. (2018), "
        f"twice the batch takes about {1 - steps:.0%} fewer steps and {2 * steps - 1:.0%} more samples to the same loss"
    )


def draw_noise_scale(points: list[Point]) -> "Figure":
    """Draw noise scale and batch size over the steps, on a logarithmic axis.

    Args:
        points: At least one.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(7, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:,g}")  # the default one writes formulas, which reports show as they are
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("samples")
    steps = [point.step for point in points]
    noise_scales = [point.noise_scale for point in points]
    axes.plot(steps, noise_scales, ".-", markersize=4, color="tab:blue", label="gradient noise scale")
    batches = [point.batch for point in points]
    axes.plot(steps, batches, "--", drawstyle="steps-post", color="tab:red", label="batch size of a step")
    axes.set_title("gradient noise scale")
    axes.legend()
    return figure
