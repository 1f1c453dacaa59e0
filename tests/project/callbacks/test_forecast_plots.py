import csv

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from litlab.errors import UserError
from project.callbacks import forecast_plots as module
from project.callbacks._forecast_figures import draw_backtest, draw_error_by_step, draw_forecasts
from project.callbacks.forecast_plots import ForecastPlots
from tests.litlab.callbacks.loggers import check_loggers
from tests.litlab.callbacks.tiny import make_trainer
from tests.project.callbacks.tiny_series import TinyForecaster, TinySeries

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


def run(folder, data, model=None, tests=1, **options):
    """Test, and return the tables and the arguments of the figures by their names."""
    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        for function in (draw_forecasts, draw_error_by_step, draw_backtest):
            patch.setattr(module, function.__name__, lambda *given, name=function.__name__: drawn.update({name: given}))
        patch.setattr(module, "publish_figure", lambda *arguments: None)
        callback, logger = ForecastPlots(**options), CSVLogger(folder, name="", version="")
        for _ in range(tests):
            trainer = make_trainer(folder, logger=logger, callbacks=[callback])
            trainer.test(model or TinyForecaster(), data, verbose=False)
    for name in ("forecast_metrics", "backtest"):
        with (folder / f"{name}.csv").open() as stream:
            drawn[name] = list(csv.DictReader(stream))
    return drawn


def errors(data):
    """Errors of all windows, (window, horizon, channel), written out."""
    length = data.context_length + data.horizon
    rows = [data.series[data.first + w : data.first + w + length] for w in range(data.windows)]
    return torch.stack([row[data.context_length - 1] - row[data.context_length :] for row in rows])


def check(row, error, scale, naive):
    """Compare a row of a table with errors of shape (..., channel)."""
    mae = error.abs()
    expected = {"mse": error.square(), "mae": mae, "mase": mae / naive, "coverage": (mae <= 1).float()}
    if "mae_units" in row:
        expected["mae_units"] = mae * scale
    for name, value in expected.items():
        assert float(row[name]) == pytest.approx(value.mean().item(), rel=1e-4)


@pytest.mark.parametrize("batch_size", [6, 20])
def test_errors_of_each_step_and_target(tmp_path, batch_size):
    data = TinySeries(batch_size=batch_size)
    table, error = run(tmp_path, data, tests=2)["forecast_metrics"], errors(data)  # each test starts anew
    keys = [(step, target) for step in (0, 1, 2) for target in (0, 1)]
    assert [(row["step"], row["target"]) for row in table] == [(str(s + 1), f"column {t}") for s, t in keys]
    for row, (step, target) in zip(table, keys, strict=True):
        check(row, error[:, step, target], data.scale[target], data.naive_error[target])


def test_backtest_by_periods_of_origins(tmp_path):
    data = TinySeries()
    table, error = run(tmp_path, data, periods=3)["backtest"], errors(data)
    assert [row["windows"] for row in table] == ["7", "7", "6"]
    # The first window begins in row 10 and sees rows 10 to 14, hours since midnight of January 1.
    assert [(row["first_origin"], row["last_origin"]) for row in table] == [
        ("2024-01-01 14:00:00", "2024-01-01 20:00:00"),
        ("2024-01-01 21:00:00", "2024-01-02 03:00:00"),
        ("2024-01-02 04:00:00", "2024-01-02 09:00:00"),
    ]
    for row, of in zip(table, error.split(7), strict=True):
        check(row, of, data.scale, data.naive_error)
    assert len(run(tmp_path / "2", TinySeries(windows=2))["backtest"]) == 2  # no more periods than windows


def test_what_is_drawn_is_spread_and_in_units_of_the_user(tmp_path):
    data = TinySeries(windows=24, targets=3)
    drawn = run(tmp_path, data, windows=3, targets=2)
    windows, names, aim = drawn["draw_forecasts"]
    assert (names, aim) == (["column 0", "column 2"], 0.9)
    units = (data.series * data.scale + data.mean)[:, [0, 2]].numpy()
    starts = [data.times.tolist().index(window.times.tolist()[0]) for window in windows]
    assert len(starts) == 3
    assert np.diff(starts).min() >= 6
    for start, window in zip(starts, windows, strict=True):
        np.testing.assert_allclose(window.series, units[start : start + 8], rtol=1e-5)
        np.testing.assert_allclose(window.forecast, np.repeat(units[start + 4 : start + 5], 3, 0), rtol=1e-5)
        for side in (window.forecast - window.lower, window.upper - window.forecast):
            np.testing.assert_allclose(side, np.tile([2.0, 4.0], (3, 1)), rtol=1e-3)
    panels, mae = drawn["draw_error_by_step"][0], errors(data).abs().mean(0).double()
    torch.testing.assert_close(panels["mean of 3 targets, scaled"][0], mae.mean(1), rtol=1e-5, atol=0)
    torch.testing.assert_close(panels["column 2, in its units"][0], mae[:, 2] * 4, rtol=1e-5, atol=0)


def test_every_logger_gets_the_plots_and_tables(tmp_path):
    plots = ForecastPlots(windows=1, targets=1, periods=2)
    pictures, tables = {"forecasts", "error_by_step", "backtest"}, {"backtest", "forecast_metrics"}
    check_loggers(tmp_path, plots, TinyForecaster(), TinySeries(), pictures, tables)


def test_a_model_without_forecasts(tmp_path):
    class Silent(TinyForecaster):
        def test_step(self, batch, batch_idx):
            return torch.zeros(())

    with pytest.raises(UserError, match=r"Silent\.test_step must return a dict with 'forecast' \(batch, horizon"):
        run(tmp_path, TinySeries(), Silent())
