"""Columns that are told of past and future: of 20 shops in long format."""

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import SeriesData
from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.serving import SeriesServing
from tests.litlab.data.conftest import prepared, refusal, restore, write_and_read
from tests.litlab.data.series.conftest import frame_of, make, predict

SETTINGS = {
    "series_column": "shop", "targets": ["sales"], "decimal": ",",
    "covariates": ["weekday", "price", "holiday", "size", "region"],
}  # fmt: skip


def make_shops(days: int = 60) -> pd.DataFrame:
    """Days of each shop: price and holidays change with the day, size and region do not."""
    shop, day = np.divmod(np.arange(20 * days), days)
    price = np.random.default_rng(0).integers(100, 900, 20 * days) / 100
    columns = {
        "date": (pd.Timestamp("2024-01-01") + pd.to_timedelta(day, "D")).astype(str),
        "shop": [f"s{number}" for number in shop],
        "sales": 1e9 + 10 * (shop % 3) - 8 * price,
        "price": price,
        "holiday": np.where(day % 7, "", "yes"),
        "size": shop % 3,
        "region": np.where(shop % 2, "south", "north"),
    }
    return pd.DataFrame(columns)


@pytest.fixture
def shops() -> SeriesData:
    """Data of the first 60 days, in a file with a decimal comma, after `setup`."""
    make_shops().to_csv("shops.csv", sep=";", decimal=",", index=False)
    return prepared(make("shops.csv", **SETTINGS))


@pytest.fixture
def later(shops) -> SeriesData:
    """What a checkpoint restores."""
    return restore(shops, decimal=",")


def make_future():
    """Of one shop 60 days with sales and three without."""
    frame = make_shops(63).astype(object)
    frame.loc[frame["date"] > "2024-02-29", ["sales", "size", "region"]] = None
    return frame[frame["shop"] == "s7"]


def test_what_a_batch_holds(shops):
    known = shops.metadata
    assert known.features[2:] == [
        "price", "holiday is yes", "size", "region is north", "region is south",
    ]  # fmt: skip
    assert (known.static, shops.num_covariates) == (["size", "region"], 7)
    assert SeriesMetadata.load(known.state_dict()) == known
    batch = shops.samples("test")[torch.tensor([0, 30])]
    frame, train = make_shops(), make_shops().query("date < '2024-02-12'")
    numbers = ["price", "size"]
    scaled = (frame[numbers] - train[numbers].mean()) / train[numbers].std(ddof=0)
    regions = [frame["region"] == name for name in ("north", "south")]
    expected = [scaled["price"], frame["holiday"] == "yes", scaled["size"], *regions]
    rows = batch["start"][:, None] + torch.arange(9)
    found, raw = batch["covariates"], shops.serving().raw(batch)[1]
    np.testing.assert_allclose(found[..., 2:], np.stack(expected, axis=1)[rows], atol=1e-5)
    np.testing.assert_allclose(raw[..., [2, 4]], frame[numbers].to_numpy()[rows], atol=1e-5)


def test_the_future_comes_from_rows_without_a_target(later):
    batch = predict(later, make_future())
    mean, scale = later.metadata.numbers["price"]
    rows = make_future()[-9:]
    np.testing.assert_allclose(
        batch["covariates"][0, :, 2] * scale + mean, rows["price"].astype(float), rtol=1e-5
    )
    assert batch["covariates"][0, :, 3].tolist() == (rows["holiday"] == "yes").tolist()
    assert batch["covariates"][0, -1, 5:].tolist() == [0, 1]  # south, as in the rows before
    table = write_and_read(later, torch.full((1, 3, 1, 3), 0.5))
    assert table["date"].tolist() == ["2024-03-01", "2024-03-02", "2024-03-03"]
    # All digits, where float32 has none of them
    expected = later.metadata.mean[0] + 0.5 * later.metadata.scale[0]
    assert table["sales"].astype(float).iloc[0] == pytest.approx(expected, abs=1e-6)


def test_what_is_missing_is_named(later):
    frame, lacking = make_future(), "--input: 'price' of 2024-03-02 00:00:00 is missing in s7; "
    for wrong, message in (
        (frame[:-2], lacking),
        (frame.assign(price=[*frame["price"][:-2], None, 3.0]), lacking + "give it for the 3 rows"),
        (frame.drop(columns="region"), "--input: there is no column 'region', only"),
        (frame.assign(price="soon"), "--input: 63 of 63 rows can't be used"),
        (frame[::7], "--input: 56% of the times of 's7' are off the step of D"),
    ):
        assert refusal(predict, later, wrong).startswith(message)


def test_covariates_that_are_none():
    for name in ("sales", "date"):
        line = f"data.covariates, data.targets: {name} is named twice"
        assert line in refusal(make, **SETTINGS | {"covariates": [name]})
    line = "data.path: there is no column 'prize', only 'date', 'shop', 'sales', 'price'"
    assert line in refusal(prepared, make(make_shops(), **SETTINGS | {"covariates": ["prize"]}))


def test_rows_behind_the_last_target_are_not_trained_on(shops, said):
    frame = make_shops(63)
    frame.loc[frame["date"] > "2024-02-29", "sales"] = None
    data, trained = (
        prepared(make(rows, **SETTINGS)) for rows in (frame, frame.dropna(subset="sales"))
    )
    assert "rows behind the last one with a target are left out: 60" in said[-1]
    assert (data.sizes, data.metadata) == (shops.sizes, trained.metadata)


@pytest.mark.parametrize(
    ("lacking", "column", "first"),
    [
        ([59], "visits", "2024-02-29"),
        ([58, 59], "sales", "2024-02-28"),
        ([59], "price", "2024-03-01"),
    ],
)
def test_the_forecast_begins_where_a_target_ends(lacking, column, first):
    """Of two targets; a price is interpolated, also from the days after the last target."""
    frame = make_shops(63)[:63].assign(visits=np.arange(63) ** 1.5)
    data = make(frame, targets=["sales", "visits"], covariates=["price"], gaps="interpolate")
    later = restore(data, gaps="interpolate")
    frame.loc[60:, ["sales", "visits"]] = None
    frame.loc[lacking, column] = None
    batch = predict(later, frame)
    place = frame.index[frame["date"] == first][0]
    expected = (frame["visits"][place - 6 : place] - data.mean[1]) / data.scale[1]
    np.testing.assert_allclose(batch["past"][0, :, 1], expected, rtol=1e-4)
    days = pd.date_range(first, periods=3).astype(str).tolist()
    assert write_and_read(later, torch.zeros(1, 3, 2, 3))["date"].tolist() == days


def test_what_is_far_from_the_training_is_counted(later, said):
    frame, (low, high) = make_future(), later.metadata.ranges["sales"]
    for times, is_far in ((0.9, False), (1.1, True)):
        sales = frame["sales"].where(frame["sales"].isna(), high + times * (high - low))
        predict(later, frame.assign(sales=sales))
        assert ("column 'sales' is far from all" in "".join(said)) == is_far
    batch = predict(later, frame.assign(region="west"))
    assert said[-1].startswith("warning: --input: in 63 of 63 rows column 'region' has a category")
    assert not batch["covariates"][..., 5:].any()


def test_requests(later):
    """As CSV in the form of the training file, as objects, with and without the series' name."""
    serving, frame = SeriesServing.load(later.serving().facts(), {}), make_future()
    frame[["size", "region"]] = frame[["size", "region"]].ffill()
    window = predict(later, frame)
    expected = [part.numpy() for part in later.serving().raw(window)]
    rows = frame.where(frame.notna(), None).to_dict("records")
    unnamed = [{name: row[name] for name in row if name != "shop"} for row in rows]
    text = frame.infer_objects().to_csv(sep=";", decimal=",", index=False)
    for sent, name in ((rows, "s7"), (unnamed, None), (text, "s7")):
        sample = serving.read(sent)
        assert sample.context.get("shop") == name
        assert sample.context["times"] == ["2024-03-01", "2024-03-02", "2024-03-03"]
        for found, value in zip(sample.inputs, expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-5)
    two = [*rows, *({**row, "shop": "s8"} for row in rows)]
    assert "series: there are 2 of them" in refusal(serving.read, two)
    assert "needs 6 rows with a target, and s7 has 5" in refusal(serving.read, rows[:5])


def test_the_example_is_written_as_the_training_file():
    form = "%d/%m/%Y %H:%M%z"
    times = pd.date_range("2024-01-01", periods=100, freq="h", tz="UTC").strftime(form)
    data = prepared(make(frame_of(times), time_format=form))
    serving = SeriesServing.load(data.serving().facts(), {})
    assert serving.read(serving.sample_request()).inputs[0].shape == (1, 6, 2)
