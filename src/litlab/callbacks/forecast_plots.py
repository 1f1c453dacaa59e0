"""Forecasts of a test: pictures, errors by horizon step and target, and over time."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import make_axes, publish_figure, publish_table, run_folder
from litlab.callbacks.samples import (
    EvenPick,
    data_with,
    from_test_step,
    gather_batches,
    refuse,
    spread_evenly,
)
from litlab.metrics import WIDEST
from litlab.types import PositiveInt

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ForecastPlots(Callback):
    """Draw forecasts, and tabulate their errors, at the end of each test.

    To the run folder and the loggers, over all test windows of all ranks but for the first picture:

    - ``forecasts.png``: some windows, spread evenly over the first rank's share of the test, of
      some targets, in the user's units: the last part of the past, the truth, the forecast and its
      interval.
    - ``error_by_step.png``: mean absolute error on the scaled data and coverage of the interval by
      horizon step, of some targets and in the mean over all.
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
        facts = ("target_names", "times", "mean", "scale", "naive_error")
        self._data = data_with(self, trainer, *facts)
        self._pick = EvenPick(self.windows, trainer)
        self._sums: list[Tensor] = []  # one: (1, measure, horizon, channel)
        # Of each batch: the rows where its windows begin, and means (window, measure, channel)
        self._starts: list[Tensor] = []
        self._means: list[Tensor] = []
        # Of the windows drawn: the row, and past, truth, forecast, lower, upper, one after the
        # other, (past + 4 * horizon, channel)
        self._drawn: list[tuple[Tensor, Tensor]] = []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        forecast = from_test_step(self, pl_module, outputs, "forecast")
        names = ("past", "future", "start")
        if not isinstance(batch, dict) or not batch.keys() >= {*names}:
            raise refuse(self, f"a test batch must be a dict with {', '.join(names)}; add them")
        past, future, start = (batch[name] for name in names)
        self._past = past.shape[1]
        nothing = torch.full_like(forecast, torch.nan)
        lower, upper = (outputs.get(name, nothing).detach() for name in ("lower", "upper"))

        # Squared and absolute error, and whether the interval holds the truth, counted on the
        # device and without waiting for it
        error = (forecast - future).float()
        covered = ((lower <= future) & (future <= upper)).to(error)
        covered = covered.where(lower <= upper, torch.nan)  # not where there is no interval
        measures = torch.stack([error.square(), error.abs(), covered], dim=1)
        self._sums = [sum(self._sums, measures.sum(dim=0, keepdim=True, dtype=WIDEST))]
        self._means.append(measures.mean(dim=2))
        self._starts.append(start)

        chosen = self._pick(start)
        rows = torch.cat([part[chosen] for part in (past, future, forecast, lower, upper)], dim=1)
        self._drawn += zip(start[chosen], rows, strict=True)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank, like gathering
        parts = (self._sums, self._starts, self._means)
        sums, starts, means = (gather_batches(trainer, part) for part in parts)
        if not trainer.is_global_zero or not len(starts):
            return
        from pandas import DataFrame

        data = self._data
        names, aim = list(data.target_names), getattr(pl_module, "coverage", None)
        mean, scale, naive = (
            torch.as_tensor(getattr(data, name), dtype=torch.float64)
            for name in ("mean", "scale", "naive_error")
        )
        targets = spread_evenly(self.targets, len(names)).tolist()
        shown = [names[i] for i in targets]

        # Some windows of some targets
        steps = sums.double().sum(dim=0) / len(starts)  # (measure, horizon, channel)
        length = self._past + steps.shape[1]
        windows = [
            (data.times[start:][:length], (rows.cpu() * scale + mean)[:, targets].T.numpy())
            for start, rows in self._drawn
        ]
        publish_figure(trainer, folder, "forecasts", draw_forecasts(windows, shown, aim))

        # Errors by horizon step
        lines = torch.cat([steps.mean(dim=2, keepdim=True), steps[:, :, targets]], dim=2)
        figure = draw_error_by_step(lines[1:], [f"mean of {len(names)}", *shown], aim)
        publish_figure(trainer, folder, "error_by_step", figure)
        squared, absolute, covered = steps
        columns = {
            "step": torch.arange(1, len(absolute) + 1).repeat_interleave(len(names)),
            "target": names * len(absolute),
            "mse": squared.flatten(),
            "mae": absolute.flatten(),
            "mae_units": (absolute * scale).flatten(),
            "mase": (absolute / naive).flatten(),
            "coverage": covered.flatten(),
        }
        publish_table(trainer, folder, "forecast_metrics", DataFrame(columns))

        # Errors by time, of windows in the order of their origins
        origins = data.times[starts + self._past - 1]
        squared, absolute, covered = means.double().unbind(dim=1)
        measures = torch.stack([squared, absolute, absolute / naive, covered]).mean(dim=2).T
        order = np.lexsort([starts, origins])
        periods = [
            [*origins[rows[[0, -1]]].astype(str), len(rows), *measures[rows].mean(dim=0).tolist()]
            for rows in np.array_split(order, min(self.periods, len(order)))
        ]
        columns = ["first_origin", "last_origin", "windows", "mse", "mae", "mase", "coverage"]
        table = DataFrame(periods, columns=columns).replace("T", " ", regex=True)
        publish_table(trainer, folder, "backtest", table)


def draw_forecasts(
    windows: list[tuple[np.ndarray, np.ndarray]], names: list[str], aim: float | None
) -> "Figure":
    """Draw windows side by side, a row for each target, in the user's units.

    Of a past that is much longer than the horizon only the last part is drawn.

    Args:
        windows: Of each the times of past and horizon, datetime64; and past, truth, forecast and
            the ends of its interval, NaN where there is none, one after the other, shape (target,
            past + 4 * horizon).
        names: Name of each target.
        aim: Share of the truth that the interval aims at; ``None`` where it is unknown.
    """
    width, height = 2 + 3.2 * len(windows), 1 + 2 * len(names)
    figure, grid = make_axes(len(names), len(windows), width, height, sharex="col")
    interval = "interval" if aim is None else f"{aim:.0%} interval"
    for column, (times, window) in zip(grid.T, windows, strict=True):
        horizon = (window.shape[1] - len(times)) // 3
        shown, future = times[-max(3 * horizon, horizon + 24) :], times[-horizon:]
        ends = [len(times), len(times) + horizon, -horizon]
        for axes, name, values in zip(column, names, window, strict=True):
            series, forecast, lower, upper = np.split(values, ends)
            axes.plot(shown, series[-len(shown) :], color="0.5", linewidth=1, label="series")
            axes.plot(future, forecast, "C0.-", label="forecast")
            if not np.isnan(lower).any():  # with an edge, which shows an interval of one step, too
                axes.fill_between(
                    future, lower, upper, color="C0", alpha=0.2, linewidth=2, label=interval
                )
            axes.set_ylabel(name)
        column[0].set_title(f"from {future[0]}".replace("T", " "), fontsize=9)
        column[-1].tick_params(axis="x", rotation=30)
    grid[0, 0].legend(fontsize=7)
    return figure


def draw_error_by_step(measures: Tensor, names: list[str], aim: float | None) -> "Figure":
    """Draw mean absolute error, and beside it the coverage of the interval, over the horizon.

    Args:
        measures: Both, shape (2, horizon, line); the error on the scaled data, coverage NaN where
            there is no interval.
        names: Name of each line.
        aim: Share of the truth that the interval aims at, a dashed line; ``None`` where it is
            unknown.
    """
    figure, grid = make_axes(1, 2, 9, 4)
    labels = ("mean absolute error, scaled", "coverage of the interval")
    for axes, lines, label in zip(grid[0], measures, labels, strict=True):
        axes.plot(range(1, len(lines) + 1), lines, ".-", label=names)
        axes.set(xlabel="steps ahead", ylabel=label)
    grid[0, 0].set_ylim(0)
    grid[0, 0].legend()
    if aim is not None:
        grid[0, 1].axhline(aim, color="grey", linestyle="--")
    return figure
