from itertools import product

import pytest
from pandas import DataFrame, read_csv
from pandas.testing import assert_frame_equal
from torch.utils.data import DataLoader

from litlab.callbacks import ForecastPlots
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import evaluate
from tests.litlab.callbacks.tiny_series import TinySeries, repeat_last


def errors(data):
    """Errors of all windows of 5 + 3 rows, (window, horizon, channel)."""
    windows = data.series[data.first :].unfold(0, 8, 1)[: data.windows].mT
    return windows[:, 4:5] - windows[:, 5:]


def measure(error, naive):
    """What tables say of errors of shape (..., channel)."""
    mae = error.abs()
    parts = {"mse": mae**2, "mae": mae, "mase": mae / naive, "coverage": (mae <= 1).float()}
    return {name: value.mean().item() for name, value in parts.items()}


def test_tables_of_errors_by_step_and_by_period(tmp_path, figures):
    data = TinySeries()
    evaluate(tmp_path, repeat_last, data, ForecastPlots(periods=3))
    error = errors(data)
    by_step = [
        {"step": step + 1, "target": f"column {target}"}
        | measure(error[:, step, target], data.naive_error[target])
        | {"mae_units": (error[:, step, target].abs() * data.scale[target]).mean().item()}
        for step, target in product(range(3), range(2))
    ]
    # The first window begins in row 40 and sees rows 40 to 44, hours since midnight of January 1.
    ends = [("02 20", "03 02"), ("03 03", "03 09"), ("03 10", "03 15")]
    by_period = [
        {"first_origin": f"2024-01-{first}:00:00", "last_origin": f"2024-01-{last}:00:00"}
        | {"windows": len(part), **measure(part, data.naive_error)}
        for (first, last), part in zip(ends, error.split(7), strict=True)
    ]
    for name, rows in (("forecast_metrics", by_step), ("backtest", by_period)):
        table = read_csv(tmp_path / f"{name}.csv")
        assert_frame_equal(table, DataFrame(rows), check_like=True, rtol=1e-4)


def test_pictures_show_windows_in_their_units(tmp_path, figures):
    """The first and the last of three windows of one series, of a model without intervals."""
    data = TinySeries(windows=3)

    def forecast(batch):
        return {"forecast": repeat_last(batch)["forecast"]}

    evaluate(tmp_path, forecast, data, ForecastPlots(2, 1))
    units = data.series[:, 0] * data.scale[0] + data.mean[0]
    for axes, start in zip(figures["forecasts"].axes, (data.first, data.first + 2), strict=True):
        series, forecast = axes.lines  # nothing else
        assert series.get_ydata() == pytest.approx(units[start : start + 8].tolist())
        assert forecast.get_ydata() == pytest.approx([units[start + 4].item()] * 3)
        assert (forecast.get_xdata() == data.times[start + 5 : start + 8]).all()
    mae = errors(data).abs().mean(dim=0)
    lines = figures["error_by_step"].axes[0].lines
    for line, expected in zip(lines, (mae.mean(dim=1), mae[:, 0]), strict=True):
        assert line.get_ydata() == pytest.approx(expected.tolist())


def without(batch, lack):
    return {name: part for name, part in batch.items() if name != lack}


@pytest.mark.parametrize("lack", ["start", "times", "forecast"])
def test_what_is_lacking_is_said_in_a_line(tmp_path, lack):
    data = TinySeries()
    loader = data.test_dataloader
    if lack == "times":
        del data.times
    data.test_dataloader = lambda: DataLoader(
        [without(batch, lack) for batch in loader()], batch_size=None
    )
    with pytest.raises(UserError, match=rf"^ForecastPlots: .*{lack}.*; .*trainer\.callbacks$"):
        evaluate(tmp_path, lambda batch: without(repeat_last(batch), lack), data, ForecastPlots())
