"""What the pictures of a sweep share: axes for values and for searched settings, labels, colours."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

from litlab.sweep.results import completed, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from litlab.sweep.spec import SweepSpec

DONE, BEST, PRUNED, FAILED, OTHER = "#1f77b4", "#d62728", "#ff7f0e", "#444444", "#999999"
DPI = 120
FAR = 6.0  # a value further from the best than this many times the better three quarters is an outlier


@dataclass
class Values:
    """How the values of one metric are drawn: those that are far worse than the rest stand at the edge.

    Attributes:
        metric: Name of the metric.
        sign: 1 where lower is better, -1 where higher is.
        edge: The worst value that is drawn in its place; infinite where values don't tell.
    """

    metric: str
    sign: float
    edge: float

    @classmethod
    def of(cls, spec: "SweepSpec", trials: list[FrozenTrial], index: int) -> "Values":
        """The scale of the metric with a number, for the completed among these trials."""
        values = np.array([trial.values[index] for trial in completed(trials)])
        return cls.fitting(spec, values, index)

    @classmethod
    def fitting(cls, spec: "SweepSpec", values: np.ndarray, index: int) -> "Values":
        """The scale of the metric with a number, for these values of it, shape (value,)."""
        sign = -1.0 if spec.directions[index] == "maximize" else 1.0
        losses = sign * values[np.isfinite(values)]
        distances = losses - losses.min()
        near = distances <= FAR * np.quantile(distances, 0.75)
        edge = losses[near].max() if near.sum() > 1 else losses.max()
        return cls(spec.metrics[index], sign, sign * (edge if edge > losses.min() else np.inf))

    @property
    def title(self) -> str:
        """The metric and where it should go."""
        return f"{label(self.metric, 40)} ({'maximize' if self.sign < 0 else 'minimize'})"

    def beyond(self, values: np.ndarray) -> np.ndarray:
        """Which values stand at the edge."""
        return self.sign * values > self.sign * self.edge

    def shown(self, values: np.ndarray) -> np.ndarray:
        """Where the values are drawn."""
        return np.where(self.beyond(values), self.edge, values)

    def scatter(self, axes: "Axes", x: np.ndarray, values: np.ndarray, marker: str, name: str, **style: Any) -> None:
        """Draw values over `x`; an arrow head stands at the edge for those that are off the picture.

        Args:
            axes: Where to draw.
            x: Shape (value,).
            values: Shape (value,).
            marker: What to draw for the others.
            name: Their name in the legend.
            style: For `Axes.scatter`; arrays hold one entry a value.
        """
        beyond = self.beyond(values)
        arrow = "^" if self.sign > 0 else "v"
        for chosen, shape, entry in ((~beyond, marker, name), (beyond, arrow, "worse than drawn")):
            if chosen.any() or entry == name:
                own: dict[str, Any] = {
                    key: value[chosen] if isinstance(value, np.ndarray) else value for key, value in style.items()
                }
                axes.scatter(x[chosen], self.shown(values)[chosen], marker=shape, label=entry, **own)


@dataclass
class Setting:
    """The axis of a searched setting: from 0 at its lower end to 1 at its upper, logarithmic if it was searched so.

    Attributes:
        name: YAML path.
        distribution: What was searched.
    """

    name: str
    distribution: BaseDistribution

    @classmethod
    def of(cls, name: str, trials: list[FrozenTrial]) -> "Setting":
        """The axis of a setting, as it was last searched."""
        return cls(name, [trial.distributions[name] for trial in trials if name in trial.distributions][-1])

    @property
    def is_choice(self) -> bool:
        """Whether its values are names, not numbers on a line."""
        return isinstance(self.distribution, CategoricalDistribution)

    def positions(self, values: list[Any]) -> np.ndarray:
        """Where values stand, shape (value,)."""
        space = self.distribution
        if isinstance(space, CategoricalDistribution):
            places = np.array([space.to_internal_repr(value) for value in values])
            return (places + 0.5) / len(space.choices)
        assert isinstance(space, (IntDistribution, FloatDistribution))
        ends, places = np.array([space.low, space.high], dtype=float), np.array(values, dtype=float)
        if space.log:
            ends, places = np.log(ends), np.log(places)
        return (places - ends[0]) / (ends[1] - ends[0]) if ends[1] > ends[0] else np.full(len(places), 0.5)

    def ticks(self, most: int) -> tuple[np.ndarray, list[str]]:
        """Positions of marks on the axis, shape (mark,), and what to write there.

        Args:
            most: How many of a range at most, its two ends included; all choices are marked.
        """
        from matplotlib.ticker import LogLocator, MaxNLocator

        space = self.distribution
        if isinstance(space, CategoricalDistribution):
            return self.positions(list(space.choices)), [number(choice) for choice in space.choices]
        assert isinstance(space, (IntDistribution, FloatDistribution))
        low, high = space.low, space.high
        if low == high:
            return np.array([0.5]), [number(low)]
        whole = isinstance(space, IntDistribution)
        locator = LogLocator(subs=(1.0, 2.0, 5.0)) if space.log else MaxNLocator(most, integer=whole)
        marks = [round(mark) if whole else float(mark) for mark in locator.tick_values(low, high) if low < mark < high]
        if space.log:  # the round ones first
            marks.sort(key=lambda mark: not re.fullmatch(r"1[0.]*(e[-+]\d+)?|0?\.0*1", number(mark)))
        kept = [low, high]
        for mark in marks:
            place = self.positions([mark])
            if len(kept) < most and (abs(self.positions(kept) - place) > 0.8 / most).all():
                kept.append(mark)
        return self.positions(kept), [number(mark) for mark in kept]


def legend(figure: "Figure") -> None:
    """Put a legend of all axes above the figure, each name once."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    style = {"loc": "outside upper center", "fontsize": 8, "frameon": False}
    figure.legend(entries.values(), entries.keys(), ncols=len(entries), **style)


def label(text: str, width: int, lines: int | None = None) -> str:
    """A name as matplotlib draws it: over several lines, broken after dots, slashes and underscores where it can be.

    Args:
        text: The name.
        width: Letters in a line.
        lines: How many there is room for: of what is longer the middle is left out.
    """
    if lines and len(text) > lines * width:
        half = lines * width // 2 - 1
        text = f"{text[:half]}…{text[-half:]}"
    pieces = [piece[i : i + width] for piece in re.findall(r"[^._/]*[._/]*", text) for i in range(0, len(piece), width)]
    wrapped = [""]
    for piece in pieces:
        if wrapped[-1] and len(wrapped[-1]) + len(piece) > width:
            wrapped.append("")
        wrapped[-1] += piece
    return "\n".join(wrapped).replace("$", r"\$")  # which would be mathematics
