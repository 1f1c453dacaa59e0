"""Pictures of forecasts and of their errors."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from torch import Tensor

from project.callbacks._forecast_errors import MEASURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES, FORECAST, AIM = "#444444", "#1f77b4", "#d62728"
DPI = 120


@dataclass
class Window:
    """One window of the series with its forecast, as it is drawn.

    Attributes:
        times: datetime64 of the rows of `series`, shape (past + horizon,), with the last part of the past only.
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

    @classmethod
    def cut(cls, values: np.ndarray, times: np.ndarray, past: int) -> Self:
        """Cut up the rows of a window, and leave out most of a past that is much longer than the horizon.

        Args:
            values: Past, truth, forecast, lower and upper end, shape (past + 4 * horizon, target).
            times: Times of the series from the first row of the past on.
            past: Number of rows of the past.
        """
        horizon = (len(values) - past) // 4
        left_out = max(0, past - max(2 * horizon, 24))
        series, forecast, lower, upper = np.split(values, past + horizon * np.arange(1, 4))
        return cls(times[left_out : past + horizon], series[left_out:], forecast, lower, upper)


def draw_forecasts(windows: list[Window], names: list[str], aim: float | None) -> "Figure":
    """Draw windows side by side, a row for each target, in the user's units.

    Args:
        windows: The windows, in the order of their times.
        names: Name of each target.
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(7.0, 3.6 * len(windows)), 2.1 * len(names) + 0.9), dpi=DPI, layout="constrained")
    grid = figure.subplots(len(names), len(windows), sharex="col", squeeze=False)
    for column, window in enumerate(windows):
        horizon = len(window.forecast)
        times = window.times[-horizon:]
        for row, name in enumerate(names):
            axes = grid[row, column]
            axes.plot(window.times, window.series[:, row], color=SERIES, linewidth=1.0, label="series")
            marker = "." if horizon == 1 else None
            axes.plot(times, window.forecast[:, row], color=FORECAST, linewidth=1.3, marker=marker, label="forecast")
            if not np.isnan(window.lower[:, row]).any():
                label = "interval" if aim is None else f"{aim:.0%} interval"
                ends = window.lower[:, row], window.upper[:, row]
                if horizon == 1:
                    axes.vlines(times, *ends, color=FORECAST, alpha=0.4, linewidth=3, label=label)
                else:
                    axes.fill_between(times, *ends, color=FORECAST, alpha=0.2, linewidth=0, label=label)
            axes.axvline(window.times[-horizon - 1], color="grey", linewidth=0.8, linestyle=":")
            axes.tick_params(labelsize=7)
            axes.margins(x=0.01)
            if column == 0:
                axes.set_ylabel(name, fontsize=9)
            if row == 0:
                axes.set_title(f"from {_day(times[0])}", fontsize=9)
        _date_axis(grid[-1, column], ticks=4)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    return figure


def draw_error_by_step(panels: dict[str, tuple[Tensor, Tensor]], aim: float | None) -> "Figure":
    """Draw mean absolute error, and below it the coverage of the interval, over the horizon.

    Args:
        panels: By title: mean absolute error and coverage (NaN where there is no interval), each of shape (horizon,).
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    covered = not any(coverage.isnan().any() for _, coverage in panels.values())
    size = (max(5.0, 3.2 * len(panels)), 4.6 if covered else 2.8)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    grid = figure.subplots(2 if covered else 1, len(panels), sharex=True, squeeze=False)
    for column, (title, (mae, coverage)) in enumerate(panels.items()):
        steps = np.arange(1, len(mae) + 1)
        marker = "." if len(steps) <= 24 else None
        axes = grid[0, column]
        axes.plot(steps, mae.numpy(), color=FORECAST, marker=marker)
        axes.set_ylim(bottom=0.0)
        axes.set_title(title, fontsize=9)
        if covered:
            axes = grid[1, column]
            axes.plot(steps, coverage.numpy(), color=FORECAST, marker=marker)
            _coverage_axis(axes, min(float(other.min()) for _, other in panels.values()), aim)
        axes.set_xlabel("steps ahead", fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    grid[0, 0].set_ylabel("mean absolute error", fontsize=8)
    if covered:
        grid[1, 0].set_ylabel("coverage", fontsize=8)
        handles, labels = grid[1, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", fontsize=8, frameon=False)
    for axes in grid.flat:
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    return figure


def draw_backtest(
    origins: np.ndarray, measures: np.ndarray, periods: list[list[object]], aim: float | None
) -> "Figure":
    """Draw mean absolute error and coverage over the origins of the forecasts, by window and as means of periods.

    Args:
        origins: Time of each window's origin, datetime64 of shape (window,).
        measures: ``MEASURES`` of each window, shape (window, 4), of scaled data.
        periods: First origin, last origin, number of windows and the means of ``MEASURES``, for each period.
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
    """
    from matplotlib.figure import Figure

    kinds = {"mae": "mean absolute error, scaled", "coverage": "coverage"}
    if np.isnan(measures[:, MEASURES.index("coverage")]).any():
        del kinds["coverage"]
    figure = Figure(figsize=(9.0, 2.6 * len(kinds)), dpi=DPI, layout="constrained")
    grid = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (kind, label) in zip(grid, kinds.items(), strict=True):
        values = measures[:, MEASURES.index(kind)]
        axes.plot(origins, values, color=FORECAST, alpha=0.35, linewidth=0.8, label="one window")
        first = 0
        for number, row in enumerate(periods):
            last = first + int(row[2]) - 1  # pyright: ignore[reportArgumentType]
            mean = row[3 + MEASURES.index(kind)]
            name = "mean of a period" if number == 0 else None
            marker = "." if first == last else None
            ends = [origins[first], origins[last]]
            axes.plot(ends, [mean, mean], color=SERIES, linewidth=2.5, marker=marker, label=name)
            first = last + 1
        axes.set_ylabel(label, fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        axes.margins(x=0.01)
        if kind == "coverage":
            _coverage_axis(axes, float(values.min()), aim)
        else:
            axes.set_ylim(bottom=0.0)
    grid[-1].set_xlabel("origin of the forecast", fontsize=8)
    _date_axis(grid[-1], ticks=8)
    figure.legend(*grid[-1].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def _coverage_axis(axes: "Axes", least: float, aim: float | None) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    if aim is not None:
        axes.axhline(aim, color=AIM, linewidth=1.0, linestyle="--", label=f"aim, {aim:.0%}")
    low = min(least, 1.0 if aim is None else aim)
    axes.set_ylim(max(-0.02, low - 0.1), 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _date_axis(axes: "Axes", ticks: int) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=2, maxticks=ticks)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.xaxis.get_offset_text().set_fontsize(7)


def _day(time: np.datetime64) -> str:
    """Return a time without the part of it that is zero."""
    text = str(time.astype("datetime64[s]")).replace("T", " ")
    return text.removesuffix(" 00:00:00").removesuffix(":00") if text.endswith(":00") else text
