"""TabularData as a whole: what a network gets of a table."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from litlab.data import TabularData
from litlab.errors import UserError
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.tables.conftest import HEADER, TableRecorder, everything, make_rows


def test_what_a_network_gets(make):
    data = prepared(make())
    assert data.sizes == {"train": 70, "val": 10, "test": 20}
    inputs, target = everything(data)
    numbers, categories = inputs["numbers"], inputs["categories"]
    assert (numbers.dtype, categories.dtype, target.dtype) == (torch.float32, torch.int64, torch.float32)
    assert (numbers.shape, categories.shape, target.shape) == ((70, 3), (70, 2), (70, 1))
    assert (data.num_numbers, data.category_sizes, data.num_outputs) == (3, [4, 3], 1)
    # Standardised by the training rows; what is missing is their mean, and the third column says so.
    raw = data.table.take(data.table.places("train"))
    missing = torch.from_numpy(np.isnan(raw.numbers["age"]))
    assert 5 < missing.sum() < 20
    assert torch.equal(numbers[:, 2] == 1, missing)
    assert (numbers[missing, 1] == 0).all()
    torch.testing.assert_close(numbers[:, 0].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(numbers[~missing, 1].std(unbiased=False), torch.tensor(1.0))
    assert set(target.flatten().tolist()) == set(raw.target.flatten().tolist())  # in the units of the file
    known = data.known_metadata.categories["city"]
    assert [known[code - 1] for code in categories[:, 0].tolist()] == raw.categories["city"].tolist()
    counts = [int((categories[:, 0] == code).sum()) for code in range(4)]
    assert counts[0] == 0
    assert counts[1] >= counts[2] >= counts[3] > 0


def test_the_scale_is_that_of_the_training_rows_alone(make):
    first = prepared(make()).known_metadata
    rows, part = make_rows(), prepared(make()).table.part
    for row, split in zip(rows, part, strict=True):
        if split != "train":
            row[0], row[2], row[4] = "1e6", f"only {split}", "1e9"
    data = prepared(make([HEADER, *rows]))
    assert data.known_metadata == first
    inputs, _ = everything(data, "test")
    assert (inputs["categories"][:, 0] == 0).all()  # never seen


def test_rare_categories_share_the_number_of_those_that_were_never_seen(make):
    rows = make_rows()
    rows[0][2], rows[1][2], rows[2][2], rows[3][2] = "Trier", "Trier", "Worms", ""
    data = prepared(make([HEADER, *rows], val_fraction=0.0, test_fraction=0.0))
    assert data.known_metadata.categories["city"][-1] == "Trier"
    assert "Worms" not in data.known_metadata.categories["city"]
    inputs, _ = everything(data)
    assert inputs["categories"][:5, 0].tolist()[:2] == [4, 4]
    assert (inputs["categories"][:, 0] == 0).nonzero().flatten().tolist() == [2, 3]


def test_columns_are_told_apart_by_what_they_hold_or_as_is_said(make, said):
    header = ["", *HEADER, "zip"]
    rows = [[str(n), *row, str(50000 + n % 4)] for n, row in enumerate(make_rows())]
    data = prepared(make([header, *rows]))
    assert data.known_metadata.numbers == ["size", "age", "zip"]
    assert list(data.known_metadata.categories) == ["city", "kind"]
    named = prepared(make([header, *rows], categories=["zip", "kind"], ignore=["city"]))
    assert named.known_metadata.numbers == ["size", "age"]
    assert named.category_sizes == [3, 5]  # in the order of the file: kind, zip
    assert not any("less than twice" in line or "dropped" in line for line in said)


@pytest.mark.parametrize(
    ("values", "task", "reason"),
    [
        (["yes", "no"], "classification", "words"),
        (["0", "1", "2"], "classification", "3 different whole numbers"),
        (["0.5", "1", "2"], "regression", "numbers"),
        ([str(n) for n in range(25)], "regression", "numbers"),
        ([f"{n}.0" for n in range(20)], "classification", "20 different whole numbers"),
    ],
)
def test_the_target_tells_the_task(make, said, values, task, reason):
    rows = [[*row[:4], values[n % len(values)]] for n, row in enumerate(make_rows())]
    data = prepared(make([HEADER, *rows]))
    assert data.known_metadata.task == task
    assert said[0] == f"data.task: {task}, as column 'price' holds {reason}; set it to change that"
    other = {"classification": "regression", "regression": "classification"}[task]
    if reason != "words":
        assert prepared(make([HEADER, *rows], task=other)).known_metadata.task == other


def test_classes(make):
    data = prepared(make(target="kind", ignore=["size"]))
    assert (data.class_names, data.num_classes, data.num_outputs) == (["flat", "house"], 2, 2)
    inputs, target = everything(data)
    assert target.dtype == torch.int64
    raw = data.table.take(data.table.places("train"))
    assert [data.class_names[number] for number in target.tolist()] == raw.target.tolist()
    share = [(data.table.target[data.table.places(split)] == "house").mean() for split in ("train", "val", "test")]
    assert max(share) - min(share) < 0.06  # stratified
    assert inputs["numbers"].shape[1] == 3


def test_only_numbers_or_only_categories(make):
    inputs, _ = everything(prepared(make(ignore=["city", "kind"])))
    assert inputs["categories"].shape == (70, 0)
    inputs, _ = everything(prepared(make(ignore=["size", "age"])))
    assert inputs["numbers"].shape == (70, 0)


def test_several_targets(make):
    data = prepared(make(target=["price", "size"]))
    assert data.target_names == ["price", "size"]
    assert everything(data)[1].shape == (70, 2)
    np.testing.assert_allclose(data.table.target[data.table.places("train")].mean(0), data.target_mean)
    np.testing.assert_allclose(data.table.target[data.table.places("train")].std(0), data.target_std)


def test_a_model_for_the_other_task_is_told_so(make):
    wrong = "model: this one is for {}, but {} is for {}; use --model {}, or set data.task {}"
    assert refusal(lambda: make().num_classes) == wrong.format(
        "classification", "price", "regression", "Regressor", "classification"
    )
    for name in ("target_names", "target_mean", "target_std"):
        assert refusal(lambda name=name: getattr(make(target="kind"), name)) == wrong.format(
            "regression", "kind", "classification", "Classifier", "regression"
        )


def test_the_split_is_the_same_for_every_seed_the_order_is_not(make, make_trainer):
    runs = []
    for seed in (0, 1, 0):
        data, model = make(seed=seed), TableRecorder()
        make_trainer(max_epochs=2).fit(model, data)
        runs.append(model)
    for name in ("numbers", "categories"):
        assert torch.equal(runs[0].column("val", name), runs[1].column("val", name))
        assert torch.equal(runs[0].column("train", name), runs[2].column("train", name))
    assert not torch.equal(runs[0].column("train", "numbers"), runs[1].column("train", "numbers"))
    assert not torch.equal(runs[0].column("train", "numbers"), runs[0].column("train", "numbers", 1))


def test_two_processes_share_the_work(make):
    orders = []
    for rank in range(2):
        data = make(batch_size=4)
        data.trainer = a_rank(rank)
        data.setup()
        orders += list(data.test_dataloader().sampler)
    assert torch.cat(orders).sort().values.tolist() == list(range(20))


def test_rows_go_where_the_model_is(make, make_trainer):
    samples = prepared(make()).samples("train")
    assert samples.on_device(torch.device("cpu")) is samples
    moved = type(samples)(samples.numbers.to("meta"), samples.categories.to("meta"), samples.target.to("meta"))
    assert moved.device.type == "meta"
    inputs, target = moved[torch.arange(3)]
    assert {inputs["numbers"].device.type, inputs["categories"].device.type, target.device.type} == {"meta"}


def test_bad_rows_are_named_or_left_out(make, said):
    rows = make_rows()
    rows[0][0], rows[1][4], rows[2] = "12 kW", "", rows[2][:3]
    message = refusal(make([HEADER, *rows]).setup)
    assert ": 3 of 100 rows can't be used: line 2 (column 'size' is '12 kW', not a plain number: write 12), " in message
    assert "line 3 (column 'price' is empty), line 4 (3 fields instead of 5: " in message
    data = prepared(make(bad_rows="drop"))
    assert sum(data.sizes.values()) == 97
    assert said[-1].split(": ", 1)[1].startswith("3 of 100 rows dropped (data.bad_rows): line 2 (")
    assert data.description.endswith("rows of 2 numbers and 2 categories, price, 3 rows dropped")


def test_odd_labels_are_told(make, said):
    rows = [[*row[:3], ("A" if row[3] == "flat" and n % 2 else row[3][0]), row[4]] for n, row in enumerate(make_rows())]
    for number, row in enumerate(rows):
        row[3] = "a" if number % 5 == 0 else "A" if row[3] == "A" else row[3]
    prepared(make([HEADER, *rows], target="kind"))
    assert any(
        line.startswith("data.target: warning: labels that differ only in how they are written") for line in said
    )


def test_without_validation_or_test(make, make_trainer):
    data, model = make(val_fraction=0.0, test_fraction=0.0), TableRecorder()
    make_trainer().fit(model, data)
    assert data.sizes == {"train": 100}
    assert (data.has_val, data.has_test, data.baselines()) == (False, False, {})
    for verb, split in (("validate", "val"), ("test", "test")):
        with pytest.raises(
            UserError, match=rf"^data\.{split}_fraction: 0 leaves no {split} rows of .*; set it above 0$"
        ):
            getattr(make_trainer(), verb)(model, data)


def test_description_and_fingerprint(make, houses):
    data = prepared(make(target="kind"))
    assert data.description == (
        f"csv {houses}: 70 train / 10 val / 20 test rows of 3 numbers and 1 categories, 2 classes of kind"
    )
    marks = {data.fingerprint, make().fingerprint, make(test_fraction=0.3).fingerprint}
    rows = make_rows()
    rows[5][2] = "Trier"
    marks.add(make([HEADER, *rows]).fingerprint)
    assert len(marks) == 4
    assert make([HEADER, *make_rows()], target="kind").fingerprint == data.fingerprint


def test_generated_rows_through_a_run(make_trainer):
    """Every call makes the same; both targets can be predicted, and none tells of the other."""
    for target, task in (("churn", "classification"), ("spend", "regression")):
        data, again = (prepared(TabularData("generated", target=target)) for _ in range(2))
        assert data.generated
        assert data.state_dict()["generated"]
        assert data.fingerprint == again.fingerprint
        assert data.description.startswith(
            "GENERATED table: 4,200 train / 600 val / 1,200 test rows of 4 numbers and 3 "
        )
        metadata = data.known_metadata
        assert metadata.task == task
        assert metadata.numbers == ["age", "income", "visits", "distance"]
        assert metadata.indicated == ["income"]
        assert len(metadata.categories["city"]) == 40
        inputs, _ = everything(data)
        assert (inputs["categories"][:, 2] == 0).float().mean() == pytest.approx(0.05, abs=0.02)
    assert refusal(TabularData("generated", target="chrun").setup) == (
        "generated table: there is no column 'chrun', only 'age', 'income', 'visits', 'distance', 'plan', 'city', "
        "'channel'; set --data.target NAME"
    )


def test_a_gpu_gets_the_rows_if_they_fit(make, monkeypatch):
    samples, moved = prepared(make()).samples("train"), []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * free, 0))
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, **_: moved.append(device) or tensor)
    size = sum(t.nbytes for t in (samples.numbers, samples.categories, samples.target))
    free = size - 1
    assert samples.on_device(torch.device("cuda")) is samples
    free = size
    assert samples.on_device(torch.device("cuda")) is not samples
    assert moved == [torch.device("cuda")] * 3
    assert samples.on_device(SimpleNamespace(type="mps")) is samples
