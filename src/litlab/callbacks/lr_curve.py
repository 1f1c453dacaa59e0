"""The curve of a learning-rate search: where the loss falls fastest, and its picture."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 20  # points of a curve that says anything


def smoothed(losses: list[float]) -> np.ndarray:
    """Return the losses averaged over neighbouring steps, without a shift to either side, shape (step,).

    Losses after the divergence are cut off at twice the height of the fall, or they would hide it.

    Args:
        losses: Finite, one for each step.
    """
    values = np.asarray(losses, dtype=np.float64)
    start = float(np.median(values[: max(3, len(values) // 20)]))
    values = np.minimum(values, start + 2 * max(start - float(values.min()), abs(start) * 1e-3))
    width = max(1.0, 0.05 * len(values))
    distance = np.arange(len(values))[:, None] - np.arange(len(values))[None, :]
    weights = np.exp(-0.5 * (distance / width) ** 2)
    return (weights @ values) / weights.sum(axis=1)


class Suggestion(NamedTuple):
    """A learning rate, and how it was read off the curve."""

    rate: float
    why: str


def suggestion(rates: list[float], losses: list[float]) -> Suggestion | None:
    """Return the rate at which the smoothed loss falls fastest, per factor in the rate, before its minimum.

    Smith 2017 (arXiv:1506.01186) reads the rate off the same curve by eye. Lightning (2.6.6) takes the slope over the
    rate itself instead of its logarithm, which is the steeper the smaller the rate is: noise at the lowest rates wins.

    Where the fall is lost in the noise, as with small steps towards a small gain, it is a tenth of the rate from which
    the loss rises (Bengio 2012, arXiv:1206.5533: the best rate is usually close to the largest that does not diverge).

    Args:
        rates: Learning rates in ascending order, at equal factors.
        losses: The loss at each; the curve ends before the first that is not finite.

    Returns:
        The rate, to three digits; None where there are too few points, or there is neither a fall nor a rise.
    """
    finite = next((number for number, loss in enumerate(losses) if not math.isfinite(loss)), len(losses))
    if finite < FEWEST:
        return None
    curve = smoothed(losses[:finite])
    lowest = int(curve.argmin())
    start = float(curve[: max(2, finite // 10)].mean())
    # The median change from step to step knows nothing of trends and divergences.
    visible = 1.3 * float(np.median(np.abs(np.diff(losses[:finite])))) + 1e-12  # 1.3 = 1.25 standard deviations
    if lowest >= 2 and curve[: lowest + 1].max() - curve[lowest] > visible:
        slope = np.gradient(curve, np.log(rates[:finite]))
        return Suggestion(_digits(rates[int(slope[: lowest + 1].argmin())]), "the loss falls fastest there")
    rises = int(np.flatnonzero(curve <= start + visible)[-1])
    if rises < finite - 1 and rates[rises] / 10 >= rates[0]:
        return Suggestion(_digits(rates[rises] / 10), "a tenth of where the loss rises; its fall is lost in the noise")
    return None


def _digits(rate: float) -> float:
    return float(f"{rate:.3g}")


def draw_lr_curve(rates: list[float], losses: list[float], found: Suggestion | None, label: str) -> "Figure":
    """Draw loss over learning rate, the smoothed curve, and the suggestion.

    Args:
        rates: As of `suggestion`.
        losses: As of `suggestion`.
        found: The suggestion.
        label: The name of the learning rate.
    """
    from matplotlib.figure import Figure

    finite = [(rate, loss) for rate, loss in zip(rates, losses, strict=True) if math.isfinite(loss)]
    figure = Figure(figsize=(7, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")  # the default one writes formulas, which reports show as they are
    axes.xaxis.set_minor_formatter("")
    axes.set_xlabel(label)
    axes.set_ylabel("training loss")
    if len(finite) > 1:
        x, y = (list(values) for values in zip(*finite, strict=True))
        curve = smoothed(y)
        axes.plot(x, y, ".", markersize=4, color="0.7", label="loss of a step")
        axes.plot(x, curve, color="tab:blue", label="smoothed")
        room = 0.1 * (curve.max() - curve.min() or 1.0)
        axes.set_ylim(curve.min() - room, curve.max() + room)
    if found is not None:
        axes.axvline(found.rate, color="tab:red", linestyle="--", label=f"suggestion: {found.rate:g}")
    axes.set_title("learning-rate search" if found is not None else "learning-rate search: no suggestion")
    if len(finite) > 1:
        axes.legend()
    return figure
