"""SeriesData as a whole: through a trainer, as a run uses it."""

import numpy as np
import pytest
import torch

from litlab.data import SeriesData
from litlab.data.download import Unavailable
from litlab.data.series.baselines import fit_ridge
from litlab.errors import UserError
from tests.litlab.data.conftest import a_rank
from tests.litlab.data.series.conftest import Etth1, SeriesRecorder, hourly, trained, wave

TRAIN = 70  # of 100 rows


def test_facts_are_known_before_setup(make, tmp_path):
    data = make(covariates=["hour", "weekday"])
    assert (data.context_length, data.horizon, data.num_targets, data.num_covariates) == (6, 3, 2, 4)
    assert data.target_names == ["load", "heat"]
    assert data.has_val
    assert data.has_test
    assert not data.generated
    elsewhere = str(tmp_path / "none")
    assert Etth1(path=elsewhere).target_names == ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    assert Etth1(path=elsewhere, targets=["OT"]).num_targets == 1
    assert SeriesData("csv", path=elsewhere, targets=["a", "b"]).num_targets == 2
    assert SeriesData("generated").num_targets == 7
    assert not make(split=[0.5, 0.5, 0.0]).has_test
    assert not make(split=[0.5, 0.0, 0.5]).has_val


def test_csv_through_a_run(make, make_trainer):
    data, model = make(covariates=["hour"]), SeriesRecorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    assert data.description == (f"csv {data.path}: 62 train / 8 val / 18 test windows of 6 + 3 rows, 2 columns")
    values = wave(100)
    mean, std = values[:TRAIN].mean(0), values[:TRAIN].std(0)
    scaled = torch.tensor((values - mean) / std, dtype=torch.float32)
    torch.testing.assert_close(data.mean, torch.tensor(mean, dtype=torch.float32))
    torch.testing.assert_close(data.scale, torch.tensor(std, dtype=torch.float32))
    expected = (scaled[4:TRAIN] - scaled[: TRAIN - 4]).abs().mean(0)
    torch.testing.assert_close(data.naive_error, expected)
    assert data.season == 4
    assert data.times.astype(str).tolist() == [time.replace(" ", "T") for time in hourly(100)]

    assert [len(batch["past"]) for batch in model.seen["train", 0]] == [8] * 7  # the incomplete batch is dropped
    assert model.all("train", "start").unique().numel() == 56
    assert not model.all("train", "start", 0).equal(model.all("train", "start", 1))
    assert model.all("val", "start").tolist() == list(range(64, 72))
    assert model.all("val", "start", 1).equal(model.all("val", "start"))
    assert model.all("test", "start", 2).tolist() == list(range(74, 92))
    for stage, epoch in (("train", 1), ("val", 0), ("test", 2)):
        for name, begin, length in (("past", 0, 6), ("future", 6, 3)):
            rows = model.all(stage, "start", epoch)[:, None] + begin + torch.arange(length)
            torch.testing.assert_close(model.all(stage, name, epoch), scaled[rows])
        assert model.all(stage, "calendar", epoch).shape == (len(rows), 9, 2)
        hour = torch.atan2(*model.all(stage, "calendar", epoch)[:, 0].T) * 24 / (2 * torch.pi)
        assert (hour.round() % 24).equal((model.all(stage, "start", epoch) % 24).float())


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


def test_the_order_depends_on_seed_and_epoch_only(make, make_trainer):
    starts = []
    for noise, seed in ((1, 5), (2, 5), (1, 6)):
        torch.manual_seed(noise)
        data, model = make(seed=seed), SeriesRecorder()
        make_trainer().fit(model, data)
        starts.append(model.all("train", "start").tolist())
    assert starts[0] == starts[1]
    assert starts[0] != starts[2]


def test_overfitting_repeats_the_same_windows(make, make_trainer):
    data, model = make(), SeriesRecorder()
    make_trainer(overfit_batches=1, max_epochs=2).fit(model, data)
    assert model.all("train", "start", 0).equal(model.all("train", "start", 1))


def test_other_processes_follow_the_first_one_to_the_stand_in(tmp_path, make_trainer):
    data = Etth1(path=str(tmp_path), fallback="generated")
    data.trainer = make_trainer()
    data.trainer.strategy.broadcast = lambda value: True
    data.setup("fit")
    assert data.generated
    assert data.sizes["train"] == 6569


def test_two_processes_share_the_work(make, make_trainer):
    seen = []
    for rank in range(2):
        data = make(batch_size=4)
        data.trainer = make_trainer()
        data.trainer.strategy.broadcast = lambda value: value
        data.setup()
        data.trainer = a_rank(rank, data.trainer.strategy)
        loaders = {split: getattr(data, f"{split}_dataloader")() for split in ("train", "test")}
        seen.append({split: torch.cat([batch["start"] for batch in loader]) for split, loader in loaders.items()})
    assert torch.cat([rank["test"] for rank in seen]).tolist() == list(range(74, 92))
    train = torch.cat([rank["train"] for rank in seen])
    assert len(train) == len(train.unique()) == 56


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


def test_without_validation_and_test(make, make_trainer):
    data, model = make(split=[1.0, 0.0, 0.0]), SeriesRecorder()
    make_trainer().fit(model, data)
    assert {stage for stage, _ in model.seen} == {"train"}
    assert data.ridge().shape == (3, 6)
    with pytest.raises(UserError, match=r"^data\.split: there are no val rows; give val a fraction above 0$"):
        make_trainer().validate(model, data)
    with pytest.raises(UserError, match=r"^data\.split: there are no test rows; give test a fraction above 0$"):
        make_trainer().test(model, data)


def test_split_by_dates(make):
    data = make(split=["2024-01-03", "2024-01-04 00:00", "2024-01-04 20:00"])
    data.setup()
    assert data.sizes == {"train": 40, "val": 22, "test": 18}


def test_gaps(make, write):
    lines = write().read_text().splitlines()
    load = lines[50].split(",")[1]
    lines[50] = lines[50].replace(f",{load},", ",,")
    del lines[30:32]
    path = str(write("\n".join(lines), name="gaps.csv"))
    with pytest.raises(
        UserError, match=r"gaps\.csv: 2 rows and 1 value are missing: row 31 \(2 rows are .*, row 49 \(col"
    ):
        make(path=path).setup()
    data = make(path=path, gaps="interpolate")
    data.setup()
    assert data.description.endswith("windows of 6 + 3 rows, 2 columns, 2 missing rows and 1 empty values interpolated")
    assert len(data.times) == 100
    start = data.train_dataloader().dataset[torch.tensor([45])]["past"][0, :, 0] * data.scale[0] + data.mean[0]
    values = wave(100)[:, 0]
    assert start[4].item() == pytest.approx((values[48] + values[50]) / 2, abs=1e-4)


def test_generated_through_a_run(make_trainer):
    data, model = SeriesData("generated", targets=["sine"], context_length=48, horizon=24), SeriesRecorder()
    make_trainer(limit_train_batches=2, limit_val_batches=1).fit(model, data)
    assert data.generated
    assert data.description == (
        "GENERATED series: 6,929 train / 977 val / 1,977 test windows of 48 + 24 rows, 1 columns"
    )
    assert data.state_dict()["targets"] == ["sine"]
    assert data.state_dict()["generated"] is True


def refuse(*_):
    raise Unavailable("example.org: no answer")


def test_stand_in_for_the_public_series(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("litlab.data.series.source.obtain_file", refuse)
    missing = Etth1(path=str(tmp_path))
    with pytest.raises(UserError, match=r"^etth1 is not in .*: put ETTh1\.csv into .*--data\.fallback generated"):
        missing.prepare_data()
    split = ["2017-07-01", "2017-11-01"]  # the stand-in ends before
    data = Etth1(path=str(tmp_path), fallback="generated", targets=["OT", "HUFL"], split=split)
    data.prepare_data()
    assert "GENERATED" in capsys.readouterr().err
    data.setup()
    assert data.generated
    assert data.target_names == data.state_dict()["targets"] == ["OT", "HUFL"]
    assert data.description.startswith("GENERATED stand-in for etth1: 6,569 train / 905 val / 1,905 test windows")


def test_the_public_series_has_the_published_split(tmp_path, monkeypatch):
    stamps = hourly(14_500, np.datetime64("2016-07-01T00:00:00"))
    rng = np.random.default_rng(0)
    lines = ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"]
    lines += [
        ",".join([time, *row])
        for time, row in zip(stamps, rng.normal(size=(14_500, 7)).round(3).astype(str), strict=True)
    ]
    (tmp_path / "ETTh1.csv").write_text("\n".join(lines))
    asked = []
    monkeypatch.setattr("litlab.data.series.source.obtain_file", lambda *file: asked.append(file))
    data = Etth1(path=str(tmp_path), horizon=720)
    data.prepare_data()
    data.setup()
    assert asked[0][0] == Etth1.public.file
    assert asked[0][1] == tmp_path
    assert data.sizes == {"train": 7585, "val": 2161, "test": 2161}
    assert data.season == 24


def test_etth1_needs_a_folder(tmp_path):
    (tmp_path / "ETTh1.csv").write_text("")
    with pytest.raises(
        UserError, match=r"^data\.path: .*ETTh1\.csv is not a folder; .*--data\.dataset csv --data\.path FILE"
    ):
        Etth1(path=str(tmp_path / "ETTh1.csv")).prepare_data()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "csv", "path": None}, "data.path: null is not valid; dataset csv needs your file"),
        ({"context_length": 0}, "data.context_length: 0 is not valid; it must be at least 1"),
        ({"horizon": 0}, "data.horizon: 0 is not valid; it must be at least 1"),
        ({"season": 0}, "data.season: 0 is not valid; it must be at least 1"),
        ({"batch_size": 0}, "data.batch_size: 0 is not valid; it must be at least 1"),
        ({"targets": []}, "data.targets: [] is not valid; name at least one, or leave it out"),
        ({"targets": ["load", "load"]}, "data.targets: 'load' is listed twice; delete one"),
        ({"targets": ["load", "date"]}, "data.targets: 'date' is the time column; delete it"),
        ({"covariates": ["hour", "hour"]}, "data.covariates: 'hour' is listed twice; delete one"),
        (
            {"split": [0.5, 0.5]},
            "data.split: [0.5, 0.5] is not valid; "
            "give three shares (train, val, test) that sum to 1, or two or three dates",
        ),
        (
            {"dataset": "etth1", "targets": ["ot"]},
            "data.targets: etth1 has no column 'ot'; did you mean 'OT'?",
        ),
        (
            {"dataset": "etth1", "targets": ["load"]},
            "data.targets: etth1 has no column 'load', only 'HUFL', 'HULL', 'MUFL', 'MULL', 'LUFL', 'LULL', 'OT'",
        ),
        (
            {"dataset": "generated", "targets": ["sinus"]},
            "data.targets: generated has no column 'sinus'; did you mean 'sine'?",
        ),
    ],
)
def test_impossible_values(make, options, message):
    with pytest.raises(UserError) as error:
        make(**options)
    assert str(error.value) == message


def test_errors_of_the_data_reach_the_user(make, write):
    lines = write().read_text().splitlines()
    constant = [lines[0], *(",".join([*line.split(",")[:2], "5"]) for line in lines[1:])]
    data = make(path=str(write("\n".join(constant), name="constant.csv")))
    with pytest.raises(UserError, match=r"constant\.csv: column 'heat' is 5 in all training rows; leave it out of"):
        data.setup()
    with pytest.raises(UserError, match="14 train rows are too few for one window of 15"):
        make(rows=20, context_length=12).setup()
    with pytest.raises(UserError, match=r"data\.split: 2023-01-01 is outside csv .*data\.csv, 2024-01-01 00:00:00 to"):
        make(split=["2023-01-01", "2024-01-02"]).setup()


def test_the_checkpoints_scaler_is_used(make, make_trainer):
    """Whether it is loaded after `setup`, as Lightning does it, or before."""
    data, model = make(), SeriesRecorder()
    data.setup("test")
    plain = data.test_dataloader().dataset[torch.arange(3)]["past"]
    ridge = data.ridge()
    other = {**data.state_dict(), "mean": [0.0, 0.0], "scale": [1.0, 2.0], "naive_error": [3.0, 4.0]}
    data.load_state_dict(other)
    assert not data.ridge().equal(ridge)
    later = make()
    later.load_state_dict(other)
    make_trainer().test(model, later, verbose=False)
    expected = torch.tensor(wave(100)[74:80] / [1, 2], dtype=torch.float32)
    for batch in (data.test_dataloader().dataset[torch.arange(3)]["past"], model.all("test", "past")):
        assert not batch[0].equal(plain[0])
        torch.testing.assert_close(batch[0], expected)
    assert later.naive_error.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"targets": ["load", "cold"]},
            "data.targets: the checkpoint was trained with [load, cold], "
            "here it is [load, heat]; set it to [load, cold]",
        ),
        ({"context_length": 9}, "data.context_length: the checkpoint was trained with 9, here it is 6; set it to 9"),
        ({"horizon": 9}, "data.horizon: the checkpoint was trained with 9, here it is 3; set it to 9"),
        ({"season": 9}, "data.season: the checkpoint was trained with 9, here it is 4; set it to 9"),
        (
            {"covariates": ["day"]},
            "data.covariates: the checkpoint was trained with [day], here it is []; set it to [day]",
        ),
        (
            {"step": {"seconds": 0, "months": 1, "at_end": False}},
            "data: the rows are 1 hour apart, the checkpoint was trained on 1 month; use rows with that step",
        ),
        (
            {"step": {"seconds": 86_400, "months": 0, "at_end": False}, "season": 7},  # the cause, not what follows
            "data: the rows are 1 hour apart, the checkpoint was trained on 1 day; use rows with that step",
        ),
        (
            {"utc": True},
            "data: the times of the checkpoint have UTC offsets, those of the data have none; write them alike",
        ),
    ],
)
def test_a_checkpoint_of_other_data_is_refused(make, change, message):
    data = make()
    data.setup("test")
    state = {**data.state_dict(), **change}
    with pytest.raises(UserError) as error:
        data.load_state_dict(state)
    assert str(error.value) == message
    later = make()
    later.load_state_dict(state)
    with pytest.raises(UserError) as error:
        later.setup("test")
    assert str(error.value) == message


def test_hyperparameters_rebuild_the_data(make, make_trainer, tmp_path):
    data, checkpoint = trained(make, make_trainer, tmp_path, covariates=["hour"], split=[0.6, 0.2, 0.2])
    again = SeriesData.load_from_checkpoint(checkpoint, weights_only=True)
    assert dict(again.hparams) == dict(data.hparams)
    assert again.source == data.source
