"""SeriesData as a whole: through a trainer, as a run uses it."""

import pytest
import torch

from litlab.data import SeriesData
from litlab.errors import UserError
from tests.litlab.data.conftest import a_rank
from tests.litlab.data.series.conftest import TRAIN, Etth1, SeriesRecorder, hourly, wave


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


def test_two_processes_share_the_work(make):
    seen = []
    for rank in range(2):
        data = make(batch_size=4)
        data.trainer = a_rank(rank)
        data.setup()
        loaders = {split: getattr(data, f"{split}_dataloader")() for split in ("train", "test")}
        seen.append({split: torch.cat([batch["start"] for batch in loader]) for split, loader in loaders.items()})
    assert torch.cat([rank["test"] for rank in seen]).tolist() == list(range(74, 92))
    train = torch.cat([rank["train"] for rank in seen])
    assert len(train) == len(train.unique()) == 56


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
        UserError, match=r"gaps\.csv: 2 rows and 1 value are missing: line 31 \(2 rows are .*, line 49 \(col"
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "csv", "path": None}, "data.path: null is not valid; dataset csv needs your file"),
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
