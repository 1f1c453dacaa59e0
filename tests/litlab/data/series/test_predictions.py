"""Forecasts of new files, from a checkpoint alone."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from litlab.data import SeriesData
from litlab.data.series.predictions import write_forecast
from litlab.data.series.step import Step
from litlab.errors import UserError
from tests.litlab.data.series.conftest import SeriesRecorder, hourly, trained


def predict(make_trainer, checkpoint, source, **options) -> tuple[SeriesData, SeriesRecorder]:
    """From the checkpoint alone: what the settings say of the data is wrong."""
    data = SeriesData("csv", path="gone.csv", time_column="gone", context_length=2, horizon=1, **options)
    data.predict_input = str(source)
    model = SeriesRecorder()
    make_trainer().predict(model, data, ckpt_path=checkpoint, weights_only=True)
    return data, model


def test_forecast_of_a_new_file_from_the_checkpoint_alone(make, make_trainer, write, tmp_path):
    data, checkpoint = trained(make, make_trainer, tmp_path, covariates=["hour"])
    state = torch.load(checkpoint, weights_only=True)["SeriesData"]
    assert state == data.state_dict()
    assert isinstance(state["mean"], list)
    assert state["step"] == {"seconds": 3600, "months": 0, "at_end": False}
    # More columns, in another order; seven rows, the last six are what counts.
    lines = [f"{time},x,{row},{row * 2}" for row, time in enumerate(hourly(7, np.datetime64("2025-12-31T18:00:00")))]
    source = write("date,note,heat,load\n" + "\n".join(lines), name="new.csv")
    data, model = predict(make_trainer, checkpoint, source)
    assert (data.context_length, data.horizon, data.target_names, data.num_covariates) == (6, 3, ["load", "heat"], 2)
    (batch,) = model.seen["predict", 0]
    assert "future" not in batch
    assert batch["start"].tolist() == [1]
    load = batch["past"][0] * data.scale + data.mean
    torch.testing.assert_close(load[:, 0], torch.arange(2.0, 14.0, 2), atol=1e-4, rtol=0)
    torch.testing.assert_close(load[:, 1], torch.arange(1.0, 7.0), atol=1e-4, rtol=0)
    hours = torch.atan2(*batch["calendar"][0].T) / (2 * torch.pi) * 24 % 24
    assert (hours.round() % 24).tolist() == [19, 20, 21, 22, 23, 0, 1, 2, 3]

    scaled = (torch.tensor([[[1.0, 200.0]] * 3]) - data.mean) / data.scale
    output = torch.stack([scaled, scaled - 1, scaled + 2], dim=-1)
    target = tmp_path / "out" / "forecast.csv"
    data.write_predictions([output], str(target))
    with target.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["date", "load", "load_lower", "load_upper", "heat", "heat_lower", "heat_upper"]
    assert [row[0] for row in rows] == ["2026-01-01 01:00:00", "2026-01-01 02:00:00", "2026-01-01 03:00:00"]
    load_scale, heat_scale = data.scale.tolist()
    expected = [1, 1 - load_scale, 1 + 2 * load_scale, 200, 200 - heat_scale, 200 + 2 * heat_scale]
    for row in rows:
        assert [float(value) for value in row[1:]] == pytest.approx(expected, rel=1e-4, abs=1e-4)

    output[..., 1:] = torch.nan
    data.write_predictions([output], str(target))
    with target.open(newline="") as stream:
        header, row, *_ = csv.reader(stream)
    assert header[1:4] == ["load", "load_lower", "load_upper"]
    assert [bool(value) for value in row] == [True, True, False, False, True, False, False]
    assert len(list(target.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("step", "offset", "stamps", "following"),
    [
        (Step(0, 1, True), "", ["2024-01-31", "2024-02-29", "2024-03-31"], ["2024-04-30", "2024-05-31"]),
        (Step(86_400), "", ["2024-02-27", "2024-02-28", "2024-02-29"], ["2024-03-01", "2024-03-02"]),
        (
            Step(3600),
            "Z",
            ["2024-03-31T00:00+01:00", "2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"],
            ["2024-03-31 02:00:00+00:00", "2024-03-31 03:00:00+00:00"],
        ),
    ],
)
def test_times_of_the_forecast(make, make_trainer, write, tmp_path, step, offset, stamps, following):
    """Months, dates, and UTC where clocks are put forward."""
    first = np.datetime64("2020-01-31T00:00:00")
    times = [str(time) + offset for time in [first, *step.after(first, 99)]]
    text = "when,load\n" + "\n".join(f"{time},{row % 7}" for row, time in enumerate(times))
    options = {
        "path": str(write(text, name="train.csv")),
        "time_column": "when",
        "context_length": 3,
        "horizon": 2,
        "season": 5,
    }
    _, checkpoint = trained(make, make_trainer, tmp_path, **options)
    source = write("when,load\n" + "\n".join(f"{stamp},1" for stamp in stamps), name="new.csv")
    data, _ = predict(make_trainer, checkpoint, source)
    data.write_predictions([torch.zeros(1, 2, 1, 3)], str(tmp_path / "forecast.csv"))
    with (tmp_path / "forecast.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows[0][0] == "when"
    assert [row[0] for row in rows[1:]] == following


def test_one_hour_at_midnight_is_no_date(tmp_path):
    known = {"mean": [0.0], "scale": [1.0], "utc": False, "targets": ["load"], "time_column": "when"}
    times = np.array(["2024-03-01T00:00:00"], dtype="datetime64[s]")
    written = []
    for seconds, months in ((3600, 0), (86_400, 0), (0, 1)):
        step = {"seconds": seconds, "months": months, "at_end": False}
        write_forecast(tmp_path / "one.csv", SimpleNamespace(**known, step=step), times, torch.zeros(1, 1, 3))
        written.append((tmp_path / "one.csv").read_text().splitlines()[1].split(",")[0])
    assert written == ["2024-03-01 00:00:00", "2024-03-01", "2024-03-01"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["date,load,heat"], ": no rows below a header"),
        (["date,load", "2024-01-01,1"], ": there is no column 'heat'(.*); the checkpoint needs it"),
        (["day,load,heat", "2024-01-01,1,2"], ": there is no column 'date'(.*); the checkpoint needs it"),
        (["date,load,heat", *(f"{t},1,2" for t in hourly(5))], ": 5 rows, the checkpoint forecasts from 6; "),
        (["date,load,heat", *(f"2024-01-{d:02},1,2" for d in range(1, 9))], ": its rows are 1 day apart"),
        (["date,load,heat", *(f"{t}Z,1,2" for t in hourly(7))], ": its times have UTC offsets, those of"),
        (["date,load,heat", *(f"{t},1,2" for t in hourly(9) if "05" not in t)], ", line 7: 1 row is missing between"),
        (["date,load,heat", *(f"{t},1,x" for t in hourly(7))], r", line 2 \(and 6 more\): column 'heat' is 'x'"),
    ],
)
def test_new_files_that_do_not_fit(make, make_trainer, write, tmp_path, lines, message):
    _, checkpoint = trained(make, make_trainer, tmp_path)
    source = write("\n".join(lines) + "\n", name="new.csv")
    with pytest.raises(UserError, match=f"new.csv{message}"):
        predict(make_trainer, checkpoint, source)


def test_gaps_of_a_new_file_are_interpolated_where_wanted(make, make_trainer, write, tmp_path):
    _, checkpoint = trained(make, make_trainer, tmp_path)
    rows = [f"{time},{row},2" for row, time in enumerate(hourly(9)) if row != 5]
    source = write("date,load,heat\n" + "\n".join(rows), name="new.csv")
    data, model = predict(make_trainer, checkpoint, source, gaps="interpolate")
    past = model.seen["predict", 0][0]["past"][0, :, 0] * data.scale[0] + data.mean[0]
    torch.testing.assert_close(past, torch.arange(3.0, 9.0), atol=1e-4, rtol=0)


def test_predicting_needs_input_and_a_checkpoint(make, make_trainer):
    data = make()
    with pytest.raises(UserError, match=r"^predict: there is nothing to predict; name a CSV file with --input$"):
        make_trainer().predict(SeriesRecorder(), data)
    data.predict_input = "new.csv"
    with pytest.raises(UserError, match=r"^predict: no checkpoint; name a run with --run$"):
        make_trainer().predict(SeriesRecorder(), data)
