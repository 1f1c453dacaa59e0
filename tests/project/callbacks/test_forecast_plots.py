import csv

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from litlab.errors import UserError
from project.callbacks import forecast_plots as module
from project.callbacks._forecast_figures import Window, draw_backtest, draw_error_by_step, draw_forecasts
from project.callbacks.forecast_plots import ForecastPlots
from tests.litlab.callbacks.loggers import check_loggers
from tests.litlab.callbacks.tiny import TinyForecaster, TinySeries, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")
FILES = {"backtest.csv", "backtest.png", "error_by_step.png", "forecast_metrics.csv", "forecasts.png"}


def run(folder, data=None, model=None, logger=True, **options):
    logger = TensorBoardLogger(folder, name="", version="") if logger is True else logger
    callback = ForecastPlots(**options)
    trainer = make_trainer(folder, logger=logger, callbacks=[callback])
    trainer.test(model or TinyForecaster(), data or TinySeries(), verbose=False)
    return logger


@pytest.fixture
def unrendered(monkeypatch):
    """Leave the figures as objects: rendering is most of the time of a test that looks at numbers."""
    monkeypatch.setattr(module, "publish_figure", lambda *arguments: None)


def table(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def errors(data):
    """Errors of all windows, (window, horizon, channel), written out."""
    rows = [
        data.series[data.first + w : data.first + w + data.context_length + data.horizon] for w in range(data.windows)
    ]
    return torch.stack([row[data.context_length - 1] - row[data.context_length :] for row in rows])


def numbers(row, *names):
    return [float(row[name]) for name in names]


@pytest.mark.parametrize("batch_size", [6, 20])
@pytest.mark.usefixtures("unrendered")
def test_metrics_of_each_step_and_target(tmp_path, batch_size):
    data = TinySeries(batch_size=batch_size)
    run(tmp_path, data)
    error, rows = errors(data), table(tmp_path / "forecast_metrics.csv")
    assert [(row["step"], row["target"]) for row in rows] == [
        (str(step), f"column {target}") for step in (1, 2, 3) for target in (0, 1)
    ]
    for row in rows:
        target = int(row["target"][-1])
        of = error[:, int(row["step"]) - 1, target]
        mae = of.abs().mean().item()
        expected = [of.square().mean(), mae, mae * (2.0 + target), mae / (0.5 + target), (of.abs() <= 1).float().mean()]
        found = numbers(row, "mse", "mae", "mae_units", "mase", "coverage")
        assert found == pytest.approx([float(value) for value in expected], rel=1e-4)


@pytest.mark.usefixtures("unrendered")
def test_backtest_by_periods_of_origins(tmp_path):
    data = TinySeries()
    run(tmp_path, data, periods=3)
    error, rows = errors(data), table(tmp_path / "backtest.csv")
    assert [int(row["windows"]) for row in rows] == [7, 7, 6]
    # The first window begins in row 10 and sees rows 10 to 14, hours since midnight of January 1.
    assert [(row["first_origin"], row["last_origin"]) for row in rows] == [
        ("2024-01-01 14:00:00", "2024-01-01 20:00:00"),
        ("2024-01-01 21:00:00", "2024-01-02 03:00:00"),
        ("2024-01-02 04:00:00", "2024-01-02 09:00:00"),
    ]
    for row, of in zip(rows, (error[:7], error[7:14], error[14:]), strict=True):
        mase = (of.abs() / torch.tensor([0.5, 1.5])).mean()
        expected = [of.square().mean(), of.abs().mean(), mase, (of.abs() <= 1).float().mean()]
        assert numbers(row, "mse", "mae", "mase", "coverage") == pytest.approx(
            [float(value) for value in expected], rel=1e-4
        )


@pytest.mark.usefixtures("unrendered")
def test_no_more_periods_than_windows(tmp_path):
    run(tmp_path, TinySeries(windows=2))
    assert [row["windows"] for row in table(tmp_path / "backtest.csv")] == ["1", "1"]


@pytest.fixture
def drawn(monkeypatch):
    """What is handed to the drawing functions, by the name of the function."""
    calls = {}
    for function in (draw_forecasts, draw_error_by_step, draw_backtest):

        def remember(*arguments, function=function):
            calls[function.__name__] = arguments
            return function(*arguments)

        monkeypatch.setattr(module, function.__name__, remember)
    return calls


@pytest.mark.usefixtures("unrendered")
def test_windows_drawn_are_spread_and_in_units_of_the_user(tmp_path, drawn):
    data = TinySeries(windows=24, targets=3, batch_size=6)
    run(tmp_path, data, windows=3, targets=2)
    windows, names, aim = drawn["draw_forecasts"]
    assert names == ["column 0", "column 2"]
    assert aim == 0.9
    units = (data.series * data.scale + data.mean)[:, [0, 2]].numpy()
    assert len(windows) == 3
    starts = [int(np.flatnonzero(data.times == window.times[0])[0]) for window in windows]
    assert np.diff(starts).min() >= 6
    for start, window in zip(starts, windows, strict=True):
        np.testing.assert_allclose(window.series, units[start : start + 8], rtol=1e-5)
        assert (window.times == data.times[start : start + 8]).all()
        np.testing.assert_allclose(window.forecast, np.repeat(units[start + 4 : start + 5], 3, 0), rtol=1e-5)
        np.testing.assert_allclose(window.forecast - window.lower, np.tile([2.0, 4.0], (3, 1)), rtol=1e-3)
        np.testing.assert_allclose(window.upper - window.forecast, np.tile([2.0, 4.0], (3, 1)), rtol=1e-3)


@pytest.mark.usefixtures("unrendered")
def test_error_by_step_in_units_of_the_user(tmp_path, drawn):
    data = TinySeries()
    run(tmp_path, data)
    panels, _ = drawn["draw_error_by_step"]
    mae = errors(data).abs().mean(0)
    assert list(panels) == ["mean of 2 targets, scaled", "column 0, in its units", "column 1, in its units"]
    expected = [mae.mean(1), mae[:, 0] * 2, mae[:, 1] * 3]
    for (found, _), value in zip(panels.values(), expected, strict=True):
        torch.testing.assert_close(found, value.double(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("with_csv", [False, True])
def test_other_loggers(tmp_path, with_csv, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(tmp_path, logger=CSVLogger(tmp_path) if with_csv else False)
    assert {path.name for path in tmp_path.rglob("*.*g")} | {path.name for path in tmp_path.rglob("*t*.csv")} >= (
        FILES if with_csv else set()
    )
    assert with_csv or list(tmp_path.iterdir()) == []


def test_one_target_one_step_and_no_interval(tmp_path, drawn):
    class Point(TinyForecaster):
        def test_step(self, batch, batch_idx):
            return {"forecast": super().test_step(batch, batch_idx)["forecast"]}

    class OneStep(TinySeries):
        horizon = 1

    run(tmp_path, OneStep(targets=1), Point())
    assert list(drawn["draw_error_by_step"][0]) == ["column 0, in its units"]
    for name in ("forecast_metrics.csv", "backtest.csv"):
        assert {row["coverage"] for row in table(tmp_path / name)} == {""}
    assert {path.name for path in tmp_path.iterdir()} >= FILES


@pytest.mark.usefixtures("unrendered")
def test_starts_anew_with_each_test(tmp_path):
    callback, data = ForecastPlots(), TinySeries()
    trainer = make_trainer(tmp_path, logger=TensorBoardLogger(tmp_path, name="", version=""), callbacks=[callback])
    for _ in range(2):
        trainer.test(TinyForecaster(), data, verbose=False)
    assert sum(int(row["windows"]) for row in table(tmp_path / "backtest.csv")) == 20
    assert len(callback._drawn) == 4


def window(horizon=4, context_length=100, nan=False):
    values = np.random.default_rng(0).normal(size=(context_length + 4 * horizon, 2))
    if nan:
        values[-2 * horizon :] = np.nan
    times = np.datetime64("2024-01-01", "s") + np.arange(200) * np.timedelta64(1, "D")
    return Window.cut(values, times, context_length), values, times


def test_only_the_last_part_of_a_long_past():
    for horizon, kept in ((4, 24), (20, 40), (60, 100)):
        cut, values, times = window(horizon)
        assert len(cut.series) == len(cut.times) == kept + horizon
        assert (cut.series == values[100 - kept : 100 + horizon]).all()
        assert cut.times[-1] == times[100 + horizon - 1]
        for number, part in enumerate((cut.forecast, cut.lower, cut.upper), 1):
            assert (part == values[100 + number * horizon :][:horizon]).all()


@pytest.mark.parametrize("nan", [False, True])
def test_forecasts_are_drawn_at_their_times(nan):
    cut, _, times = window(nan=nan)
    figure = draw_forecasts([cut, cut], ["oil", "gas"], 0.8)
    assert len(figure.axes) == 4
    axes = figure.axes[2]  # second row, first column
    assert axes.get_ylabel() == "gas"
    series, forecast = axes.lines[:2]
    assert (series.get_xdata() == cut.times).all()
    assert (series.get_ydata() == cut.series[:, 1]).all()
    assert (forecast.get_xdata() == times[100:104]).all()
    assert (forecast.get_ydata() == cut.forecast[:, 1]).all()
    assert figure.axes[0].get_title() == "from 2024-04-10"
    labels = [text.get_text() for text in figure.legends[0].texts]
    assert labels == ["series", "forecast"] + ([] if nan else ["80% interval"])


def test_coverage_is_drawn_where_it_is_known():
    mae, coverage, unknown = torch.ones(3), torch.tensor([0.9, 0.5, 0.4]), torch.full((3,), torch.nan)
    assert len(draw_error_by_step({"a": (mae, unknown)}, 0.9).axes) == 1
    axes = draw_error_by_step({"a": (mae, coverage), "b": (mae, coverage)}, 0.9).axes[2]
    torch.testing.assert_close(torch.tensor(axes.lines[0].get_ydata()), coverage)
    assert axes.lines[1].get_label() == "aim, 90%"
    assert axes.get_ylim()[0] < 0.4


def test_periods_are_drawn_over_their_origins():
    origins = np.datetime64("2024-01-01", "s") + np.arange(5) * np.timedelta64(1, "D")
    measures = np.arange(20.0).reshape(5, 4)
    periods = [["", "", 3, 1.0, 2.0, 3.0, 4.0], ["", "", 2, 5.0, 6.0, 7.0, 8.0]]
    mae, coverage = draw_backtest(origins, measures, periods, None).axes
    assert mae.lines[0].get_ydata().tolist() == [1.0, 5.0, 9.0, 13.0, 17.0]
    assert [list(line.get_xdata()) for line in mae.lines[1:]] == [list(origins[[0, 2]]), list(origins[[3, 4]])]
    assert [list(line.get_ydata()) for line in mae.lines[1:]] == [[2.0, 2.0], [6.0, 6.0]]
    assert [list(line.get_ydata()) for line in coverage.lines[1:]] == [[4.0, 4.0], [8.0, 8.0]]
    measures[:, 3] = np.nan
    assert len(draw_backtest(origins, measures, periods, None).axes) == 1


def test_what_is_missing_is_named(tmp_path):
    class Silent(TinyForecaster):
        def test_step(self, batch, batch_idx):
            return torch.zeros(())

    with pytest.raises(UserError, match=r"Silent\.test_step must return a dict with 'forecast' \(batch, horizon"):
        run(tmp_path, model=Silent(), logger=False)
    data = TinySeries()
    del data.times
    with pytest.raises(UserError, match=r"ForecastPlots: TinySeries has no 'times'"):
        run(tmp_path, data, logger=False)


def test_every_logger_gets_the_plots_and_tables(tmp_path):
    plots = ForecastPlots(windows=1, targets=1, periods=2)
    pictures, tables = {"forecasts", "error_by_step", "backtest"}, {"backtest", "forecast_metrics"}
    check_loggers(tmp_path, plots, TinyForecaster(), TinySeries(), pictures, tables)
