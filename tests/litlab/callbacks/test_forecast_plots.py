from itertools import product

import pytest
import torch
from pandas import read_csv
from torch.utils.data import DataLoader

from litlab.callbacks import ForecastPlots
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import evaluate
from tests.litlab.callbacks.tiny_series import TinySeries, repeat_last


def errors(data):
    """Errors of all windows, (window, horizon, channel), written out."""
    length = data.context_length + data.horizon
    rows = [data.series[data.first + w : data.first + w + length] for w in range(data.windows)]
    return torch.stack([row[data.context_length - 1] - row[data.context_length :] for row in rows])


def check(row, error, scale, naive):
    """Compare a row of a table with errors of shape (..., channel)."""
    mae = error.abs()
    expected = {"mse": mae**2, "mae": mae, "mase": mae / naive, "coverage": (mae <= 1).float()}
    if "mae_units" in row:
        expected["mae_units"] = mae * scale
    for name, value in expected.items():
        assert row[name] == pytest.approx(value.mean().item(), rel=1e-4)


def test_tables_of_errors_by_step_and_by_period(tmp_path, figures):
    data = TinySeries()
    evaluate(tmp_path, repeat_last, data, ForecastPlots(periods=3))
    by_step, by_period = (
        read_csv(tmp_path / name).to_dict("records")
        for name in ("forecast_metrics.csv", "backtest.csv")
    )
    error = errors(data)
    keys = product((0, 1, 2), (0, 1))
    for row, (step, target) in zip(by_step, keys, strict=True):
        assert (row["step"], row["target"]) == (step + 1, f"column {target}")
        check(row, error[:, step, target], data.scale[target], data.naive_error[target])
    # The first window begins in row 40 and sees rows 40 to 44, hours since midnight of January 1.
    origins = [("02 20", "03 02"), ("03 03", "03 09"), ("03 10", "03 15")]
    for row, of, (first, last) in zip(by_period, error.split(7), origins, strict=True):
        check(row, of, data.scale, data.naive_error)
        assert row["windows"] == len(of)
        assert first in row["first_origin"]
        assert last in row["last_origin"]


def without(batch, *names):
    return {name: part for name, part in batch.items() if name not in names}


def test_pictures_show_windows_in_their_units(tmp_path, figures):
    """The first and the last of three windows of one series, of a model without intervals."""
    data = TinySeries(windows=3)

    def forecast(batch):
        return without(repeat_last(batch), "lower", "upper")

    evaluate(tmp_path, forecast, data, ForecastPlots(2, 1))
    units = data.series[:, 0] * data.scale[0] + data.mean[0]
    for axes, start in zip(figures["forecasts"].axes, (data.first, data.first + 2), strict=True):
        series, forecast = axes.lines  # nothing else
        assert series.get_ydata() == pytest.approx(units[start : start + 8].tolist())
        assert forecast.get_ydata() == pytest.approx([units[start + 4].item()] * 3)
        assert (forecast.get_xdata() == data.times[start + 5 : start + 8]).all()
    error = figures["error_by_step"].axes[0]
    mean, first = errors(data).abs().mean(dim=0).mean(dim=1), errors(data)[:, :, 0].abs().mean(0)
    for line, expected in zip(error.lines, (mean, first), strict=True):
        assert line.get_ydata() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("lack", ["start", "times", "forecast"])
def test_what_is_lacking_is_said_in_a_line(tmp_path, lack):
    data = TinySeries()
    loader = data.test_dataloader
    if lack == "times":
        del data.times
    data.test_dataloader = lambda: DataLoader(
        [without(batch, lack) for batch in loader()], batch_size=None
    )

    def forecast(batch):
        return without(repeat_last(batch), lack)

    with pytest.raises(UserError, match=rf"^ForecastPlots: .*{lack}.*; .*trainer\.callbacks$"):
        evaluate(tmp_path, forecast, data, ForecastPlots())
