"""What is fitted to the scaled series: its season, the ridge regression, the baselines."""

import numpy as np
import pytest
import torch

from litlab.data.series.baselines import fit_ridge
from litlab.errors import UserError
from tests.litlab.data.series.conftest import TRAIN, wave


def test_scaler_and_ridge_know_nothing_of_the_test(make, write):
    """What lies behind the validation rows may be anything."""
    data = make()
    data.setup()
    lines = write(name="other.csv").read_text().splitlines()
    for row in range(81, 101):
        lines[row] = lines[row].split(",")[0] + ",7777,-7777"
    other = make(path=str(write("\n".join(lines), name="other.csv")))
    other.setup()
    assert {**data.state_dict()} == {**other.state_dict()}
    assert data.ridge().equal(other.ridge())
    assert data.ridge().shape == (3, 6)
    assert data.ridge(10).shape == (3, 10)


def test_baselines_on_all_test_windows(make):
    data = make()
    data.setup("test")
    errors = data.baselines()
    assert list(errors)[:2] == ["repeat last", "seasonal naive"]
    values = wave(100)
    scaled = (values - values[:TRAIN].mean(0)) / values[:TRAIN].std(0)
    naive_error = np.abs(scaled[4:TRAIN] - scaled[: TRAIN - 4]).mean(0)
    ridges = {rows: data.ridge(rows).double().numpy() for rows in (6, 3, 1)}
    validation = range(TRAIN - 6, 80 - 8)

    def val_error(rows):
        wrong = [ridges[rows] @ scaled[s + 6 - rows : s + 6] - scaled[s + 6 : s + 9] for s in validation]
        return (np.stack(wrong) ** 2).mean()

    best = min(ridges, key=val_error)
    assert best != 1
    ridge = f"ridge ({best} rows)"
    wrong = {"repeat last": [], "seasonal naive": [], ridge: []}
    for start in range(74, 92):
        past, future = scaled[start : start + 6], scaled[start + 6 : start + 9]
        wrong["repeat last"].append(past[-1] - future)
        wrong["seasonal naive"].append(past[2:5] - future)
        wrong[ridge].append(ridges[best] @ past[6 - best :] - future)
    for name, rows in wrong.items():
        rows = np.stack(rows)
        assert errors[name]["test/mse"] == pytest.approx((rows**2).mean(), rel=1e-4)
        assert errors[name]["test/mae"] == pytest.approx(np.abs(rows).mean(), rel=1e-4)
        assert errors[name]["test/mase"] == pytest.approx((np.abs(rows) / naive_error).mean(), rel=1e-4)


def test_a_season_may_be_longer_than_the_past(make, monkeypatch):
    data = make(season=20)
    data.setup("test")
    values = wave(100)
    scaled = (values - values[:TRAIN].mean(0)) / values[:TRAIN].std(0)
    wrong = [scaled[row - 20] - scaled[row] for start in range(80, 98) for row in range(start, start + 3)]
    whole = data.baselines()
    assert whole["seasonal naive"]["test/mse"] == pytest.approx((np.stack(wrong) ** 2).mean(), rel=1e-4)
    monkeypatch.setattr("litlab.data.series.scaled._CHUNK", 300)
    for name, row in data.baselines().items():
        assert row == pytest.approx(whole[name], rel=1e-5)
    with pytest.raises(UserError, match=r"^data\.season: 70 is too long for 70 training rows; make it shorter$"):
        make(season=70).setup()


def test_the_season_follows_the_step_where_the_training_rows_hold_two(make):
    for rows, season in ((100, 24), (60, 1)):
        data = make(rows=rows, season=None)
        data.setup()
        assert data.season == season


def test_ridge_is_fitted_on_training_rows_and_chosen_on_validation_rows(make):
    data = make()
    data.setup()
    values = wave(100)
    scaled = torch.tensor((values - values[:TRAIN].mean(0)) / values[:TRAIN].std(0), dtype=torch.float32)
    expected = fit_ridge(scaled[:70], scaled[64:80], 6, 3)
    torch.testing.assert_close(data.ridge(), expected)
    data.ridge().zero_()
    torch.testing.assert_close(data.ridge(), expected)


def test_ridge_needs_training_rows(make):
    data = make()
    data.setup()
    assert data.ridge(67).shape == (3, 67)
    with pytest.raises(UserError, match="70 training rows are too few for a ridge regression from 68 rows to 3"):
        data.ridge(68)
