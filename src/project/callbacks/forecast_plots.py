"""Forecasts of a test: pictures, errors by horizon step and target, and over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.evaluation import data_with, from_test_step, pick_evenly
from litlab.callbacks.reporting import publish_figure, publish_table, run_folder
from litlab.types import PositiveInt
from litlab.util.ranks import gather_rows
from project.callbacks._figures import BLUE, GREY, RED, add_legend, make_axes, set_date_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MEASURES = ["mse", "mae", "mase", "coverage"]


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


class ForecastErrors:
    """Errors over all windows of a test: sums for each (step, target), and means for each window.

    Everything is of scaled data. `gather` makes the attributes:

    - ``mse``, ``mae``, ``coverage``: means over the windows, float64 of shape (horizon, channel).
    - ``starts``: the row of the series where each window begins, ascending, int64 of shape
      (window,).
    - ``measures``: ``mse``, ``mae``, ``mase`` and ``coverage`` of each window, float64 of shape
      (window, 4).

    Args:
        naive_error: Mean absolute error that MASE divides by (Hyndman and Koehler, 2006,
            https://doi.org/10.1016/j.ijforecast.2006.03.001), shape (channel,).
    """

    def __init__(self, naive_error: Sequence[float]) -> None:
        self.naive_error = torch.as_tensor(naive_error).cpu().double()
        self._sums: Tensor | None = None  # (squared, absolute, covered; horizon, channel)
        self._starts: list[Tensor] = []  # (batch,) for each batch
        self._means: list[Tensor] = []  # (batch, 3, channel) for each batch

    def add(
        self, start: Tensor, future: Tensor, forecast: Tensor, lower: Tensor, upper: Tensor
    ) -> None:
        """Count a batch, on its device and without waiting for it.

        Args:
            start: Row of the series where each window begins, shape (batch,).
            future: The truth, shape (batch, horizon, channel), as the following.
            forecast: The forecast.
            lower: Lower end of the interval; NaN where there is none.
            upper: Upper end of the interval; NaN where there is none.
        """
        error = forecast - future
        covered = (
            ((lower <= future) & (future <= upper))
            .to(error)
            .masked_fill((lower + upper).isnan(), torch.nan)
        )
        # (batch, 3, horizon, channel)
        parts = torch.stack([error.square(), error.abs(), covered], dim=1)
        sums = parts.sum(
            dim=0, dtype=torch.float32 if parts.device.type == "mps" else torch.float64
        )
        self._sums = sums if self._sums is None else self._sums + sums
        self._means.append(parts.mean(dim=2))
        self._starts.append(start)

    def gather(self, trainer: Trainer) -> None:
        """Take in the windows of all ranks. Call it on every rank, once, after one `add` at
        least.
        """
        assert self._sums is not None
        starts = gather_rows(trainer, torch.cat(self._starts))
        means = gather_rows(trainer, torch.cat(self._means)).double()
        sums = gather_rows(trainer, self._sums[None]).double().sum(dim=0)
        order = starts.argsort()
        squared, absolute, covered = means[order].unbind(dim=1)
        self.starts = starts[order].numpy()
        self.measures = (
            torch.stack([squared, absolute, absolute / self.naive_error, covered])
            .mean(dim=2)
            .T.numpy()
        )
        self.mse, self.mae, self.coverage = sums / len(starts)

    def tabulate_steps(self, names: list[str], scale: Tensor) -> "DataFrame":
        """Return a table with a row for each horizon step, from 1, and target.

        Args:
            names: Name of each target.
            scale: Units of the user in one of the scaled data, shape (channel,).
        """
        from pandas import DataFrame

        columns = [self.mse, self.mae, self.mae * scale, self.mae / self.naive_error, self.coverage]
        values = torch.stack(columns, dim=2).flatten(0, 1).tolist()
        keys = [[step, name] for step in range(1, len(self.mse) + 1) for name in names]
        rows = [[*key, *row] for key, row in zip(keys, values, strict=True)]
        return DataFrame(
            rows, columns=["step", "target", "mse", "mae", "mae_units", "mase", "coverage"]
        )

    def tabulate_periods(self, origins: np.ndarray, periods: list[np.ndarray]) -> "DataFrame":
        """Return a table with a row for each of some periods.

        Args:
            origins: Time of each window's origin, datetime64 of shape (window,).
            periods: Numbers of the windows in each.
        """
        from pandas import DataFrame

        times = [
            text.replace("T", " ") for text in np.datetime_as_string(origins, unit="s").tolist()
        ]
        rows = [
            [
                times[period[0]],
                times[period[-1]],
                len(period),
                *self.measures[period].mean(axis=0).tolist(),
            ]
            for period in periods
        ]
        return DataFrame(rows, columns=["first_origin", "last_origin", "windows", *MEASURES])


FACTS = "target_names", "times", "mean", "scale", "naive_error"  # of the data module


class ForecastPlots(Callback):
    """Draw forecasts, and tabulate their errors, at the end of each test.

    To the run folder and the loggers, over all test windows of all ranks:

    - ``forecasts.png``: some windows, spread evenly over the test split, of some targets, in the
      user's units: the last part of the past, the truth, the forecast and its interval.
    - ``error_by_step.png``: mean absolute error and coverage of the interval by horizon step.
    - ``forecast_metrics.csv``: a row for each horizon step (from 1) and target: ``mse`` and ``mae``
      on the scaled data, ``mae_units`` in the user's units, ``mase``, ``coverage``.
    - ``backtest.csv``: the rolling-origin backtest (Tashman, 2000,
      https://doi.org/10.1016/S0169-2070(00)00065-0). A window's origin is the last row that its
      forecast has seen. The windows, in the order of their origins, are cut into periods with
      equally many; a row for each period: its first and last origin, number of windows, ``mse``,
      ``mae``, ``mase``, ``coverage``.

    Coverage, the share of the truth inside the interval, stays empty where there is no interval.
    Memory holds three numbers for each window and channel and sums over the windows, no forecasts
    but those drawn.

    The model's ``test_step`` returns a dict with ``forecast`` and perhaps ``lower`` and ``upper``,
    (batch, horizon, channel), scaled; a batch is a dict with ``past`` (batch, past, channel),
    ``future`` (batch, horizon, channel), scaled, and ``start`` (batch,), the row of the series
    where the window begins. The model's ``coverage``, if it has one, is the share that the interval
    aims at. The data module has ``mean`` and ``scale`` (units = scaled * scale + mean),
    ``naive_error`` (the denominator of MASE), each (channel,); ``target_names``; and ``times``,
    datetime64 of all rows of the series.

    Args:
        windows: Number of windows drawn.
        targets: Number of targets drawn, evenly chosen from all, the first and the last among them.
        periods: Number of periods of the backtest.

    Raises:
        UserError: Where the model's ``test_step`` or the data module lacks what is needed.
    """

    files = ("forecasts.png", "error_by_step.png", "forecast_metrics.csv", "backtest.csv")

    def __init__(
        self, windows: PositiveInt = 4, targets: PositiveInt = 3, periods: PositiveInt = 10
    ) -> None:
        self.windows = windows
        self.targets = targets
        self.periods = periods

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._errors: ForecastErrors | None = None
        self._starts: list[Tensor] = []  # of the windows drawn
        # (past + 4 * horizon, channel): past, truth, forecast, lower, upper
        self._drawn: list[Tensor] = []
        self._batches = 0

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        forecast = from_test_step(
            self, pl_module, outputs, "forecast", "(batch, horizon, channel)"
        ).float()
        nothing = torch.full_like(forecast, torch.nan)
        lower, upper = (outputs.get(name, nothing).detach().float() for name in ("lower", "upper"))
        past, future, start = batch["past"].float(), batch["future"].float(), batch["start"]
        if self._errors is None:
            self._errors = ForecastErrors(data_with(self, trainer, *FACTS).naive_error)
        self._errors.add(start, future, forecast, lower, upper)

        chosen = pick_evenly(
            self.windows, len(self._drawn), self._batches, sum(trainer.num_test_batches), len(start)
        )
        self._batches += 1
        self._past = past.shape[1]
        if len(chosen):
            chosen = chosen.to(start.device, non_blocking=True)
            self._starts += start[chosen]
            self._drawn += torch.cat([past, future, forecast, lower, upper], dim=1)[chosen]

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank, like gathering
        errors = self._errors
        if errors is None:
            return
        errors.gather(trainer)
        starts = gather_rows(trainer, torch.stack(self._starts))
        drawn = gather_rows(trainer, torch.stack(self._drawn))
        if not trainer.is_global_zero:
            return
        data = data_with(self, trainer, *FACTS)
        names, times = list(data.target_names), data.times
        mean, scale = (
            torch.as_tensor(values, dtype=torch.float64) for values in (data.mean, data.scale)
        )
        aim = getattr(pl_module, "coverage", None)
        targets = _spread_evenly(self.targets, len(names)).tolist()

        # Some windows: every rank kept as many as are drawn of all.
        order = starts.argsort()[_spread_evenly(self.windows, len(starts))]
        units = (drawn[order] * scale + mean)[:, :, targets].numpy()
        windows = [
            self._cut(times[start:], rows)
            for start, rows in zip(starts[order].tolist(), units, strict=True)
        ]
        chosen = [names[i] for i in targets]
        title = (
            f"{len(chosen)} of {len(names)} columns, {len(windows)} of {len(errors.starts):,} "
            "windows of the test"
        )
        publish_figure(trainer, folder, "forecasts", draw_forecasts(windows, chosen, aim, title))

        # Errors by horizon step.
        panels = {
            f"{names[i]}, in its units": (errors.mae[:, i] * scale[i], errors.coverage[:, i])
            for i in targets
        }
        if len(names) > 1:
            panels = {
                f"mean of {len(names)} targets, scaled": (
                    errors.mae.mean(1),
                    errors.coverage.mean(1),
                ),
                **panels,
            }
        publish_figure(trainer, folder, "error_by_step", draw_error_by_step(panels, aim))
        publish_table(trainer, folder, "forecast_metrics", errors.tabulate_steps(names, scale))

        # Errors by time.
        origins = times[errors.starts + self._past - 1]
        order = origins.argsort(kind="stable")
        origins, errors.measures = origins[order], errors.measures[order]
        periods = np.array_split(np.arange(len(origins)), min(self.periods, len(origins)))
        publish_table(trainer, folder, "backtest", errors.tabulate_periods(origins, periods))

    def _cut(self, times: np.ndarray, rows: np.ndarray) -> Window:
        horizon = (len(rows) - self._past) // 4
        length = self._past + horizon
        return Window(
            times[:length], *np.split(rows, [length, length + horizon, length + 2 * horizon])
        )


def _spread_evenly(count: int, length: int) -> Tensor:
    """Return the numbers of so many of a row of things, the first and the last among them."""
    return torch.linspace(0, length - 1, min(count, length)).round().long()


def draw_forecasts(
    windows: list[Window], names: list[str], aim: float | None, title: str = ""
) -> "Figure":
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
            axes.plot(
                window.times[shown],
                window.series[shown, target],
                color=GREY,
                linewidth=1,
                label="series",
            )
            axes.plot(
                future,
                window.forecast[:, target],
                ".-",
                color=BLUE,
                markersize=4,
                linewidth=1.3,
                label="forecast",
            )
            lower, upper = window.lower[:, target], window.upper[:, target]
            if not np.isnan(lower).any():  # with an edge, which shows an interval of one step, too
                axes.fill_between(
                    future, lower, upper, color=BLUE, alpha=0.2, linewidth=2, label=interval
                )
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
        panels: By title: mean absolute error and coverage (NaN where there is no interval), each of
            shape (horizon,).
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
    """
    from matplotlib.ticker import MaxNLocator

    rows = 1 if any(coverage.isnan().any() for _, coverage in panels.values()) else 2
    figure, grid = make_axes(
        rows, len(panels), max(5.0, 3.2 * len(panels)), 1 + 1.8 * rows, sharex=True
    )
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
