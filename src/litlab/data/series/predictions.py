"""Predicting: the last rows of a new file, and the CSV file with what follows them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from litlab.data.bad_rows import Policy
from litlab.data.series.covariates import calendar_features
from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.reading import read_table
from litlab.data.series.step import Step
from litlab.data.series.timeline import Series, regular
from litlab.data.series.windows import Windows
from litlab.data.table import check_finite, forecast_columns, write_table
from litlab.data.text_file import TextFile
from litlab.errors import UserError


def read_last_window(
    path: Path, metadata: SeriesMetadata, gaps: Literal["error", "interpolate"], bad_rows: Policy
) -> tuple[Windows, np.ndarray]:
    """Read the rows that a forecast is made from; columns that the training did not have are ignored.

    Returns:
        The last window, without a future, and the times that follow it, datetime64[s] of shape (horizon,).

    Raises:
        UserError: The file is missing, wrong, too short, or not like that of the training.
    """
    context_length, horizon = metadata.context_length, metadata.horizon
    series = read_series(path, vars(metadata), gaps, bad_rows)
    if series.filled:
        rank_zero_info(f"{path}: {series.filled}")
    future = series.step.after(series.times[-1], horizon)
    calendar = calendar_features(np.concatenate([series.times, future]), metadata.covariates)
    first = len(series.times) - context_length
    last = range(first, first + 1)
    values = series.scaled(metadata.mean, metadata.scale)
    return Windows(values, calendar, last, context_length, horizon, known=False), future


def read_series(
    path: TextFile, known: Mapping[str, Any], gaps: Literal["error", "interpolate"], bad_rows: Policy
) -> Series:
    """Read a series to forecast; columns that the training did not have are ignored.

    Args:
        path: The CSV file, or what was sent.
        known: Fields of the checkpoint's metadata by their names: ``time_column``, ``targets``, ``step``, ``utc`` and
            ``context_length``.
        gaps: Whether missing rows and values are errors or interpolated.
        bad_rows: Whether bad rows are errors or left out.

    Raises:
        UserError: It is missing, wrong, too short, or not like that of the training.
    """
    options = {"trained": True, "setting": "--input", "bad_rows": bad_rows}
    table = read_table(path, known["time_column"], known["targets"], **options)
    series = regular(table, gaps, Step(**known["step"]))
    if series.utc != known["utc"]:
        has, lack = ("have", "had none") if series.utc else ("have no", "had some")
        raise UserError(f"{path}: its times {has} UTC offsets, those of the training {lack}; write them alike")
    if len(series.times) < known["context_length"]:
        rows, least = len(series.times), known["context_length"]
        raise UserError(f"{path}: {rows} rows, the checkpoint forecasts from {least}; give at least that many")
    return series


def time_texts(times: np.ndarray, step: Step, utc: bool) -> list[str]:
    """Return times as a file of predictions has them: dates where the step is days and all are midnights.

    Args:
        times: datetime64[s] of shape (row,).
        step: The step between two of them.
        utc: Whether they are UTC; then they are written with +00:00.
    """
    daily = step.seconds % 86_400 == 0  # months are 0 seconds
    dates = daily and not utc and bool((times == times.astype("datetime64[D]")).all())
    return [str(time)[:10] if dates else str(time).replace("T", " ") + "+00:00" * utc for time in times]


def write_forecast(path: Path, metadata: SeriesMetadata, times: np.ndarray, forecast: Tensor) -> None:
    """Write a row per time: the time, and for each column its forecast, lower and upper bound, in the user's units.

    The columns are named by `forecast_columns`, times are written by `time_texts`; bounds are empty where there are
    none.

    Args:
        path: The CSV file; it is replaced in one step.
        metadata: Metadata of the checkpoint.
        times: datetime64[s] of shape (horizon,).
        forecast: Forecast, lower and upper bound, scaled, (horizon, column, 3); bounds are NaN where there are none.

    Raises:
        UserError: A forecast is not finite, or the file can't be written.
    """
    units = forecast.cpu().double().numpy() * np.array(metadata.scale)[:, None] + np.array(metadata.mean)[:, None]
    texts = time_texts(times, Step(**metadata.step), metadata.utc)
    known = units[:, :, : 1 if np.isnan(units[:, :, 1:]).all() else 3]
    check_finite(torch.from_numpy(known), texts)
    rows = units.reshape(len(times), -1).tolist()
    write_table(
        path,
        forecast_columns(metadata.time_column, metadata.targets),
        ([text, *map(_number, row)] for text, row in zip(texts, rows, strict=True)),
    )


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.7g}"
