"""SeriesData as a whole: windows, from a checkpoint, and public."""

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import PublicSeries, SeriesData
from tests.litlab.data.conftest import prepared, refusal, restore, write_and_read
from tests.litlab.data.series.conftest import (
    frame_of,
    hours,
    long_frame,
    make,
    predict,
    take,
    wave,
)


def scale_wave() -> torch.Tensor:
    """The two columns, scaled by the 70 rows to train on."""
    values, train = wave(100), wave(70)
    return torch.tensor((values - train.mean(0)) / train.std(0), dtype=torch.float32)


def test_windows_of_a_file():
    frame_of(hours(100)).to_csv("load.csv", sep=";", decimal=",", index=False)
    data = prepared(make("load.csv", decimal=","))
    assert data.description.endswith("62 train / 8 val / 18 test windows of 6 + 3 rows, 2 columns")
    scaled = scale_wave()
    naive_error = (scaled[4:70] - scaled[:66]).abs().mean(0)
    torch.testing.assert_close(torch.tensor(data.naive_error), naive_error)
    for split, starts in (("train", range(62)), ("val", range(64, 72)), ("test", range(74, 92))):
        batch, rows = take(data, split), torch.tensor(starts)[:, None] + torch.arange(9)
        assert batch["start"].tolist() == [*starts]
        torch.testing.assert_close(torch.cat([batch["past"], batch["future"]], 1), scaled[rows])


def test_several_series_are_one_data_set(said):
    """They are cut at one time, when one of them has ended; one that is too short is named."""
    frame, shorter = long_frame(b=100, a=80), long_frame(b=100, a=80, c=8, d=20)
    shorter.loc[shorter["place"] == "d", ["load", "heat"]] = None
    data, other = (
        prepared(make(each, series_column="place", val_fraction=0.2)) for each in (frame, shorter)
    )
    assert "9 rows with a target, and c has 8, d has 0; what is too short is" in said[-1]
    assert data.fingerprint == other.fingerprint
    assert data.sizes == other.sizes == {"train": 52 + 52, "val": 18 + 18, "test": 18}
    assert data.samples("val").starts.tolist() == [*range(54, 72), *range(154, 172)]
    values = np.concatenate([wave(100), wave(80) + np.array([50, 0])])
    train = np.concatenate([values[:60], values[100:160]])
    scaled = torch.tensor((values - train.mean(0)) / train.std(0), dtype=torch.float32)

    later = restore(data)
    batch = predict(later, pd.concat([frame, frame_of(hours(5)).assign(place="c")]))
    assert "6 rows with a target, and c has" in said[-1]
    torch.testing.assert_close(batch["past"], torch.stack([scaled[94:100], scaled[174:180]]))
    table = write_and_read(later, torch.zeros(2, 3, 2, 3))
    assert table["place"].tolist() == ["b"] * 3 + ["a"] * 3
    assert table["date"].tolist()[2:4] == ["2024-01-05 06:00:00", "2024-01-04 08:00:00"]


def test_baselines_on_all_test_windows():
    scaled, data = scale_wave(), prepared(make(), "test")
    ridge = data.ridge(6)
    forecasts = {
        "repeat last": lambda past: past[-1],
        "seasonal naive": lambda past: past[-4:-1],
        "ridge": lambda past: ridge @ past[-6:],
    }
    errors = data.baselines()
    assert list(errors) == list(forecasts)
    for name, forecast in forecasts.items():
        wrong = torch.stack(
            [forecast(scaled[:start]) - scaled[start : start + 3] for start in range(80, 98)]
        )
        mae = wrong.abs()
        expected = {"mse": wrong**2, "mae": mae, "mase": mae / torch.tensor(data.naive_error)}
        for key, values in expected.items():
            assert errors[name][f"test/{key}"] == pytest.approx(values.mean().item(), rel=1e-4)
    assert "seasonal naive" not in prepared(make(season=7)).baselines()  # longer than the past


# ---- checkpoints and prediction


def test_forecast_of_a_new_file_from_the_checkpoint_alone():
    data, other = (make(covariates=["hour"], horizon=horizon) for horizon in (3, 2))
    again = restore(data)
    other.load_state_dict(data.state_dict())
    assert "the checkpoint was trained with horizon 3" in refusal(prepared, other)
    # More columns, in another order; seven rows, the last six are what counts.
    new = frame_of(hours(7, "2025-12-31 18:00"), note="x", heat=range(7), load=range(0, 14, 2))
    new.to_csv("new.csv", index=False)
    batch = predict(again, "new.csv")
    assert set(batch) == {*again.serving().names, "start"}
    mean, scale = torch.tensor([data.mean, data.scale])
    past = batch["past"][0] * scale + mean
    np.testing.assert_allclose(past, new[["load", "heat"]][1:], atol=1e-4)
    turns = torch.atan2(*batch["covariates"][0].T) / (2 * torch.pi) * 24 % 24
    assert (turns.round() % 24).tolist() == [19, 20, 21, 22, 23, 0, 1, 2, 3]

    outputs = torch.tensor([0.0, -1.0, 2.0]).expand(1, 3, 2, 3)
    table = write_and_read(again, outputs)
    assert table.pop("date").tolist() == hours(3, "2026-01-01 01:00")
    assert list(table) == ["load", "load_lower", "load_upper", "heat", "heat_lower", "heat_upper"]
    ends = (mean[:, None] + scale[:, None] * outputs[0, 0]).flatten()
    np.testing.assert_allclose(table.astype(float), ends.expand(3, 6), rtol=1e-4)


def months(day: int, step: int = 1) -> list[pd.Timestamp]:
    """A day of each month or so from 1980 on, or the last one where there is none."""
    begins = pd.date_range("1980-02-01", periods=60, freq=f"{step}MS")
    return [begin.replace(day=min(day, begin.days_in_month)) for begin in begins]


@pytest.mark.parametrize(
    ("training", "new", "following"),
    [
        (months(31), ["2024-01-31", "2024-02-29", "2024-03-31"], ["2024-04-30", "2024-05-31"]),
        (months(30), ["2024-01-30", "2024-02-29", "2024-03-30"], ["2024-04-30", "2024-05-30"]),
        (months(30, 3), ["2023-11-30", "2024-02-29", "2024-05-30"], ["2024-08-30", "2024-11-30"]),
        (months(29, 12), ["2022-02-28", "2023-02-28", "2024-02-29"], ["2025-02-28", "2026-02-28"]),
        (
            pd.date_range("2024-01-01", periods=60, freq="B"),
            ["2024-02-28", "2024-02-29", "2024-03-01"],
            ["2024-03-04", "2024-03-05"],
        ),
        (
            pd.date_range("2024-01-01", periods=100, freq="D", tz="Europe/Berlin"),
            ["2024-03-30T00:00+01:00", "2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00"],
            ["2024-04-02", "2024-04-03"],
        ),
    ],
)
def test_times_of_the_forecast(training, new, following):
    """Month ends, months on any day, business days, and days of a clock that is put forward."""
    frame = frame_of([time.isoformat() for time in training])
    data = make(frame, context_length=3, horizon=2, val_fraction=0.2)
    later = restore(data, time_column="gone", context_length=9, horizon=1)
    predict(later, frame_of(new))
    assert write_and_read(later, torch.zeros(1, 2, 2, 3))["date"].tolist() == following


HOURS = pd.date_range("2024-01-13", periods=100, freq="h")
SECONDS = (HOURS - pd.Timestamp(0)) // pd.Timedelta("1s")


@pytest.mark.parametrize(
    "times",
    [
        SECONDS, SECONDS / 86_400 + 25_569, HOURS.strftime("%b %d, %Y %I %p"),
        (HOURS + pd.Timedelta("5h30min")).strftime("%Y-%m-%d %H:%M+05:30"),
    ],
)  # fmt: skip
def test_forms_of_times(times):
    """In training, and of other hours in `predict`; test_columns.py has more of them."""
    data = make(frame_of(times))
    assert data.series.times.tz_localize(None).equals(HOURS.as_unit(data.series.times.unit))
    later = restore(data)
    predict(later, frame_of(times[:50]))
    following = later._predicted.index.get_level_values(1)[-3:].tz_localize(None)
    assert following.astype(str).tolist() == HOURS[50:53].astype(str).tolist()


@pytest.mark.parametrize(("training", "new"), [("", "+01:00"), (" UTC", "")])
def test_hours_with_and_without_offsets(training, new):
    data = restore(make(frame_of([time + training for time in hours(100)])))
    message = refusal(predict, data, frame_of([time + new for time in hours(9)]))
    assert "UTC offsets, and those of the training have" in message


# ---- made-up and public data


class Etth1(SeriesData):
    public = PublicSeries("", "ETTh1.csv", "", ("load", "heat"), (8640, 11520, 14400))


def test_the_public_series_has_the_published_split(monkeypatch):
    frame_of(hours(14_500, "2016-07-01")).to_csv("ETTh1.csv", index=False)
    monkeypatch.setattr("litlab.data.public.PublicFile.download", lambda self, root: None)
    data = prepared(Etth1(path=".", horizon=720))
    assert (data.sizes, data.metadata.season) == ({"train": 7585, "val": 2161, "test": 2161}, 24)
