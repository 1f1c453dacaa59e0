import csv

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from litlab.errors import UserError
from project.callbacks import forecast_plots as module
from project.callbacks._forecast_figures import Window, draw_backtest, draw_error_by_step, draw_forecasts
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
        np.testing.assert_allclose(window.forecast - window.lower, np.tile([2.0, 4.0], (3, 1)), rtol=1e-3)
        np.testing.assert_allclose(window.upper - window.forecast, np.tile([2.0, 4.0], (3, 1)), rtol=1e-3)
    panels, mae = drawn["draw_error_by_step"][0], errors(data).abs().mean(0).double()
    assert list(panels) == ["mean of 3 targets, scaled", "column 0, in its units", "column 2, in its units"]
    torch.testing.assert_close(panels["mean of 3 targets, scaled"][0], mae.mean(1), rtol=1e-5, atol=0)
    torch.testing.assert_close(panels["column 2, in its units"][0], mae[:, 2] * 4, rtol=1e-5, atol=0)


def test_one_target_and_no_interval(tmp_path):
    class Point(TinyForecaster):
        def test_step(self, batch, batch_idx):
            return {"forecast": super().test_step(batch, batch_idx)["forecast"]}

    drawn = run(tmp_path, TinySeries(targets=1), Point())
    assert list(drawn["draw_error_by_step"][0]) == ["column 0, in its units"]
    assert {row["coverage"] for name in ("forecast_metrics", "backtest") for row in drawn[name]} == {""}


def test_forecasts_are_drawn_at_their_times_behind_the_last_part_of_the_past():
    times = np.datetime64("2024-01-01", "s") + np.arange(104) * np.timedelta64(1, "D")
    series, forecast = np.random.rand(104, 2), np.random.rand(4, 2)
    for interval in (forecast, np.full((4, 2), np.nan)):
        window = Window(times, series, forecast, interval, interval)
        figure = draw_forecasts([window, window], ["oil", "gas"], 0.8)
        axes = figure.axes[2]  # second row, first column
        assert (axes.get_ylabel(), figure.axes[0].get_title()) == ("gas", "from 2024-04-10")
        for line, xs, ys in zip(axes.lines, (times[-28:], times[100:]), (series[-28:], forecast), strict=False):
            assert (line.get_xdata() == xs).all()
            assert (line.get_ydata() == ys[:, 1]).all()
        labels = [text.get_text() for text in figure.legends[0].texts]
        assert labels == ["series", "forecast"] + (["80% interval"] if interval is forecast else [])


def test_coverage_is_drawn_where_it_is_known():
    mae, coverage, unknown = torch.ones(3), torch.tensor([0.9, 0.5, 0.4]), torch.full((3,), torch.nan)
    assert len(draw_error_by_step({"a": (mae, unknown)}, 0.9).axes) == 1
    axes = draw_error_by_step({"a": (mae, coverage), "b": (mae, coverage)}, 0.9).axes[2]
    assert axes.lines[0].get_ydata() == pytest.approx(coverage.tolist())
    assert axes.lines[1].get_label() == "aim, 90%"


def test_means_of_periods_are_drawn_over_their_origins():
    origins = np.datetime64("2024-01-01", "s") + np.arange(5) * np.timedelta64(1, "D")
    measures, periods = np.arange(20.0).reshape(5, 4), [np.arange(3), np.arange(3, 5)]
    mae, coverage = draw_backtest(origins, measures, periods, None).axes
    assert mae.lines[0].get_ydata().tolist() == [1.0, 5.0, 9.0, 13.0, 17.0]
    for axes, means in ((mae, (5.0, 15.0)), (coverage, (7.0, 17.0))):
        days = axes.lines[0].get_xdata(orig=False)
        (first, second) = (line.tolist() for line in axes.collections[0].get_segments())
        assert first == [[days[0], means[0]], [days[2], means[0]]]
        assert second == [[days[3], means[1]], [days[4], means[1]]]
    measures[:, 3] = np.nan
    assert len(draw_backtest(origins, measures, periods, None).axes) == 1


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
