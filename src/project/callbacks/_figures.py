"""What the figures of this folder have in common: axes side by side, titles, one legend for all,
axes of dates.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, BLUE, RED = "#444444", "#1f77b4", "#d62728"


def make_axes(
    rows: int, columns: int, width: float, height: float, **shared: Any
) -> tuple["Figure", np.ndarray]:
    """Return a figure of so many inches, and its axes, an array of shape (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        axes.margins(x=0.02)
    return figure, grid


def title_prediction(axes: "Axes", names: Sequence[str], label: int, probabilities: Tensor) -> None:
    """Write prediction and probability above axes, in red with the true class if it is wrong."""
    predicted = int(probabilities.argmax())
    title = f"{shorten(names[predicted])} {probabilities[predicted]:.0%}"
    if predicted != label:
        title += f"\nis {shorten(names[label])}"
    axes.set_title(title, fontsize=8, color="black" if predicted == label else "red")


def shorten(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"


def add_legend(figure: "Figure", axes: "Axes") -> None:
    """Name below a figure what one of its axes shows."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=len(labels),
            fontsize=8,
            frameon=False,
        )


def set_date_axis(axes: "Axes", ticks: int) -> None:
    """Show few and short dates below axes."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=2, maxticks=ticks)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.xaxis.get_offset_text().set_fontsize(7)
