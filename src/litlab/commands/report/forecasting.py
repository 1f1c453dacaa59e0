"""What a report says about a forecaster: some forecasts, errors by step and column, coverage of the intervals."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from litlab.callbacks.evaluation import pick_evenly
from litlab.commands.report.blocks import Block, Figure, Paragraph, Section, Table
from litlab.commands.report.drawings import draw_steps, draw_window
from litlab.commands.report.samples import EvaluationContext

WINDOWS = 4  # that are drawn
COLUMNS = 3  # of each window that are drawn
MOST_ROWS = 20  # of the table of columns


class Forecasting:
    """Collects the errors of forecasts, and keeps a few windows.

    Args:
        test: The test.
    """

    task = "time-series-forecasting"

    def __init__(self, test: EvaluationContext) -> None:
        data: Any = getattr(test.trainer, "datamodule", None)
        self.data = data if hasattr(data, "target_names") else None
        self.aim = getattr(test.model, "coverage", None)
        self.test = test
        self._sums = torch.zeros(0)  # (absolute, squared, covered, width; horizon, column), float64
        self._count = 0
        self._windows: list[tuple[int, Tensor, Tensor]] = []  # start, past, and future, forecast, lower, upper

    @staticmethod
    def fits(outputs: dict[str, Any], batch: Any) -> bool:
        """Return whether these are forecasts, and a batch with the truth."""
        forecast, future = outputs.get("forecast"), batch.get("future") if isinstance(batch, dict) else None
        if not isinstance(forecast, Tensor) or not isinstance(future, Tensor):
            return False
        return forecast.ndim == 3 and forecast.shape == future.shape and "past" in batch

    def add(self, outputs: dict[str, Any], batch: Any, number: int) -> None:
        """Add the errors of a batch."""
        forecast, future, past = (
            part.detach().float().cpu() for part in (outputs["forecast"], batch["future"], batch["past"])
        )
        ends = [outputs.get(name) for name in ("lower", "upper")]
        lower, upper = (
            end.detach().float().cpu() if isinstance(end, Tensor) else torch.full_like(future, torch.nan)
            for end in ends
        )
        error = forecast - future
        covered = ((lower <= future) & (future <= upper)).float().masked_fill(lower.isnan(), torch.nan)
        sums = torch.stack([error.abs(), error.square(), covered, upper - lower]).double().sum(dim=1)
        self._sums = sums if not self._count else self._sums + sums
        self._count += len(future)
        starts = batch["start"] if "start" in batch else torch.zeros(len(future))
        for place in pick_evenly(WINDOWS, len(self._windows), number, self.test.batches, len(future)).tolist():
            parts = torch.stack([future[place], forecast[place], lower[place], upper[place]])
            self._windows.append((int(starts[place]), past[place], parts))

    def sections(self) -> list[Section]:
        """Return forecasts, errors, and the coverage."""
        mae, mse, coverage, width = (self._sums / self._count).numpy()
        names = self._names(mae.shape[1])
        unit = self.data.scale.cpu().numpy() if self.data is not None else np.ones(mae.shape[1])
        rows = [
            [
                name, f"{mse[:, place].mean():.4g}", f"{mae[:, place].mean():.4g}",
                f"{mae[:, place].mean() * unit[place]:.4g}",
                "-" if np.isnan(coverage).any() else f"{coverage[:, place].mean():.1%}",
                "-" if np.isnan(width).any() else f"{width[:, place].mean() * unit[place]:.4g}",
            ]
            for place, name in enumerate(names[:MOST_ROWS])
        ]  # fmt: skip
        header = ["column", "mse, scaled", "mae, scaled", "mae", "coverage", "width of the interval"]
        table = Table(header, rows, f"Means over {self._count:,} windows and {len(mae)} steps ahead", numbers=True)
        if not np.isfinite(mae).all():
            said = Paragraph("Some forecasts or true values are not numbers, so they are not drawn.")
            return [Section("errors", "Errors", [said, table])]
        by_step = Figure(
            draw_steps({"": mae.mean(axis=1)}, "Mean absolute error by step ahead"),
            "Mean absolute error by step ahead, scaled", "error_by_step",
        )  # fmt: skip
        return [
            Section("forecasts", "Forecasts of the test split", self._drawn(names)),
            Section("errors", "Errors", [table, by_step]),
            Section("coverage", "Coverage of the intervals", self._coverage(coverage)),
        ]

    def samples(self) -> list[Block]:
        """Return nothing: the forecasts show the series."""
        return []

    def _names(self, columns: int) -> list[str]:
        return list(self.data.target_names) if self.data is not None else [str(n) for n in range(columns)]

    def _drawn(self, names: list[str]) -> list[Block]:
        found: list[Block] = []
        for start, past, parts in self._windows:
            for place in np.linspace(0, len(names) - 1, min(COLUMNS, len(names))).round().astype(int).tolist():
                tail = past[-max(2 * parts.shape[1], 24) :, place]
                future, forecast, *ends = self._units(parts[:, :, place], place)
                when = f", from {self._time(start + len(past))}" if self.data is not None else ""
                caption = f"{names[place]}{when}"
                svg = draw_window(self._units(tail, place), future, forecast, np.stack(ends), f"Forecast of {caption}")
                found.append(Figure(svg, caption, f"forecast_{len(found)}"))
        return found

    def _units(self, values: Tensor, column: int) -> np.ndarray:
        """Return scaled values in the units of the file."""
        if self.data is None:
            return values.numpy()
        return (values * self.data.scale.cpu()[column] + self.data.mean.cpu()[column]).numpy()

    def _time(self, row: int) -> str:
        assert self.data is not None
        return str(self.data.times[row]).replace("T", " ").removesuffix(":00")

    def _coverage(self, coverage: np.ndarray) -> list[Block]:
        if np.isnan(coverage).any():
            return []
        aim = "" if self.aim is None else f", and are made to cover {self.aim:.0%}"
        said = f"The intervals cover {coverage.mean():.1%} of the truth in the test split{aim}."
        curves = {"covered": coverage.mean(axis=1)}
        if self.aim is not None:
            curves["aim"] = np.full(len(coverage), self.aim)
        label = f"Share of the truth inside of the interval, {coverage.mean():.1%} on average"
        return [Paragraph(said), Figure(draw_steps(curves, label), "Share that is covered, by step ahead", "coverage")]
