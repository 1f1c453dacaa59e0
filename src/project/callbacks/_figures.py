"""The figures of this folder: axes side by side with one legend, forecasts and their errors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, BLUE, RED = "#444444", "#1f77b4", "#d62728"


def make_axes(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple["Figure", np.ndarray]:
    """Return a figure of so many inches, and its axes, an array of shape (rows, columns)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for axes in grid.flat:
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        axes.margins(x=0.02)
    return figure, grid


def add_legend(figure: "Figure", axes: "Axes") -> None:
    """Name below a figure what one of its axes shows."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)


def set_date_axis(axes: "Axes", ticks: int) -> None:
    """Show few and short dates below axes."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=2, maxticks=ticks)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.xaxis.get_offset_text().set_fontsize(7)


@dataclass
class Window:
    """One window of the series with its forecast, as it is drawn.

    Attributes:
        times: datetime64 of the rows of `series`, shape (past + horizon,).
        series: Past and truth, shape (past + horizon, target).
        forecast: Shape (horizon, target).
        lower: Lower end of the interval, same shape; NaN where there is none.
        upper: Upper end of the interval, same shape; NaN where there is none.
    """

    times: np.ndarray
    series: np.ndarray
    forecast: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def draw_forecasts(windows: list[Window], names: list[str], aim: float | None, title: str = "") -> "Figure":
    """Draw windows side by side, a row for each target, in the user's units.

    Of a past that is much longer than the horizon only the last part is drawn.

    Args:
        windows: The windows, in the order of their times.
        names: Name of each target.
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
        title: Over all of it.
    """
    width, height = max(7.0, 3.6 * len(windows)), 2.1 * len(names) + 0.9
    figure, grid = make_axes(len(names), len(windows), width, height, sharex="col")
    figure.suptitle(title, fontsize=9)
    interval = "interval" if aim is None else f"{aim:.0%} interval"
    for column, window in zip(grid.T, windows, strict=True):
        horizon = len(window.forecast)
        shown = slice(-(horizon + max(2 * horizon, 24)), None)
        future = window.times[-horizon:]
        for target, axes in enumerate(column):
            axes.plot(window.times[shown], window.series[shown, target], color=GREY, linewidth=1, label="series")
            axes.plot(
                future, window.forecast[:, target], ".-", color=BLUE, markersize=4, linewidth=1.3, label="forecast"
            )
            lower, upper = window.lower[:, target], window.upper[:, target]
            if not np.isnan(lower).any():  # with an edge, which shows an interval of one step, too
                axes.fill_between(future, lower, upper, color=BLUE, alpha=0.2, linewidth=2, label=interval)
            axes.axvline(window.times[-horizon - 1], color="grey", linewidth=0.8, linestyle=":")
        column[0].set_title(f"from {format_time(future[0])}", fontsize=9)
        set_date_axis(column[-1], ticks=4)
    for axes, name in zip(grid[:, 0], names, strict=True):
        axes.set_ylabel(name, fontsize=9)
    add_legend(figure, grid[0, 0])
    return figure


def draw_error_by_step(panels: dict[str, tuple[Tensor, Tensor]], aim: float | None) -> "Figure":
    """Draw mean absolute error, and below it the coverage of the interval, over the horizon.

    Args:
        panels: By title: mean absolute error and coverage (NaN where there is no interval), each of shape (horizon,).
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
    """
    from matplotlib.ticker import MaxNLocator

    rows = 1 if any(coverage.isnan().any() for _, coverage in panels.values()) else 2
    figure, grid = make_axes(rows, len(panels), max(5.0, 3.2 * len(panels)), 1 + 1.8 * rows, sharex=True)
    for column, (title, lines) in zip(grid.T, panels.items(), strict=True):
        for axes, values in zip(column, lines, strict=False):
            axes.plot(range(1, len(values) + 1), values, ".-", color=BLUE, markersize=3)
        column[0].set_ylim(bottom=0.0)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel("steps ahead", fontsize=8)
        column[-1].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    grid[0, 0].set_ylabel("mean absolute error", fontsize=8)
    if rows == 2:
        for axes in grid[1]:
            _set_coverage_axis(axes, aim)
        grid[1, 0].set_ylabel("coverage", fontsize=8)
        add_legend(figure, grid[1, 0])
    return figure


def format_time(time: np.datetime64) -> str:
    """Return a time to the minute, or a day where that is all."""
    return str(np.datetime_as_string(time, unit="m")).replace("T", " ").removesuffix(" 00:00")


def _set_coverage_axis(axes: "Axes", aim: float | None) -> None:
    from matplotlib.ticker import PercentFormatter

    if aim is not None:
        axes.axhline(aim, color=RED, linewidth=1.0, linestyle="--", label=f"aim, {aim:.0%}")
    axes.set_ylim(top=1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
