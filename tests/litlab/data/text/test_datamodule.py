"""TextData as a whole: through a trainer, as a run uses it."""

import csv
import gzip

import pytest
import torch

from litlab.data import TextData
from litlab.errors import UserError
from tests.litlab.data.conftest import a_rank
from tests.litlab.data.text.conftest import TextRecorder, decode, make_rows, write_csv


def test_facts_are_known_before_anything_is_tokenised(make_data, csv_data):
    data = csv_data(vocab_size=50, max_tokens=7)
    assert data.class_names == ["bad", "good"]
    assert (data.num_classes, data.vocab_size, data.max_tokens) == (2, 50, 7)
    assert data.has_val
    assert data.has_test
    assert not data.generated
    assert not data.cache_dir.exists()
    news = make_data(dataset="news")
    assert news.class_names == ["World", "Sports", "Business", "Sci/Tech"]
    assert (news.vocab_size, news.max_tokens) == (20_000, 256)
    assert make_data(dataset="generated").num_classes == 4
    assert not csv_data(val_fraction=0.0).has_val
    assert not csv_data(test_fraction=0.0).has_test


def test_csv_through_a_run(csv_data, make_trainer, reviews):
    data, model = csv_data(), TextRecorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, data)
    assert data.description == (
        f"csv {reviews}: 80 train / 10 val / 10 test texts of up to 256 tokens, 2 classes, at most 20,000 words"
    )
    batches = model.seen["train", 0]
    assert [len(labels) for _, labels in batches] == [8] * 10
    for inputs, labels in batches:
        assert set(inputs) == {"ids"}
        assert inputs["ids"].dtype == labels.dtype == torch.int64
        assert inputs["ids"].shape[0] == len(labels)
        padding = inputs["ids"] == 0
        assert not padding.all(0).any()  # the longest text has none
        assert (padding.int().diff(dim=1) >= 0).all()  # padding comes last
    assert model.ids("train", 0) != model.ids("train", 1)
    assert sorted(model.ids("train", 0)) == sorted(model.ids("train", 1))
    for stage in ("val", "sanity", "train"):
        for inputs, labels in model.seen[stage, 0]:
            words = [decode(data, [i for i in row if i]) for row in inputs["ids"].tolist()]
            assert ["good" in row for row in words] == (labels == 1).tolist()
    trainer.test(model, data, verbose=False)
    assert torch.bincount(torch.cat([labels for _, labels in model.seen["test", 2]])).tolist() == [5, 5]


def test_batches_of_evaluation_know_their_texts(csv_data, make_trainer):
    data, model = csv_data(batch_size=3), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    for split, epoch in (("val", 0), ("test", 1)):
        numbers = []
        for number, (inputs, _) in enumerate(model.seen[split, epoch]):
            index = data.sample_index(split, number).tolist()
            for i, ids in zip(index, inputs["ids"].tolist(), strict=True):
                words = decode(data, [token for token in ids if token])
                assert words[1:] == data.text(split, i).split()[1:]  # the first is unknown
            numbers += index
        assert sorted(numbers) == list(range(10))
        assert numbers != sorted(numbers)


def test_every_text_is_in_one_split_whatever_the_seed(csv_data):
    splits = []
    for seed in (0, 1):
        data = csv_data(seed=seed)
        data.prepare_data()
        data.setup()
        sizes = {"train": 80, "val": 10, "test": 10}
        splits.append({split: [data.text(split, i) for i in range(size)] for split, size in sizes.items()})
        assert len({text for texts in splits[-1].values() for text in texts}) == 100
    assert splits[0] == splits[1]
    orders = [list(csv_data_loader(csv_data(seed=seed))) for seed in (0, 1)]
    assert [batch.tolist() for batch in orders[0]] != [batch.tolist() for batch in orders[1]]


def csv_data_loader(data):
    data.prepare_data()
    data.setup("fit")
    return data.train_dataloader().sampler


def test_the_tokenizer_learns_from_training_texts_alone(csv_data, reviews):
    write_csv(reviews, [["text", "label"], *([f"own{i} own{i} all once{i}", str(i % 2)] for i in range(50))])
    data = csv_data()
    data.prepare_data()
    data.setup()
    from tokenizers import Tokenizer

    known = Tokenizer.from_str(data.state_dict()["tokenizer"]).get_vocab()
    assert data.sizes["train"] == 40
    assert set(known) == {"[PAD]", "[UNK]", "all"} | {data.text("train", i).split()[0] for i in range(40)}


def test_a_test_file_is_used_as_it_is(csv_data, reviews):
    data = csv_data(test_path=str(reviews.parent / "test.csv"), test_fraction=0.5)
    data.prepare_data()
    data.setup()
    assert data.sizes == {"train": 90, "val": 10, "test": 20}
    assert [data.text("test", i) for i in range(20)] == [text for text, _ in make_rows(20, seed=1)]


def test_a_run_repeats_exactly_and_leaves_the_global_generator_alone(csv_data, make_trainer):
    runs = []
    for noise in (1, 2):
        data, model = csv_data(seed=5, tokens_per_batch=64), TextRecorder()
        torch.manual_seed(noise)
        make_trainer(max_epochs=3).fit(model, data)
        runs.append(([model.ids("train", epoch) for epoch in range(3)], torch.rand(1)))
        for inputs, _ in model.seen["train", 0]:
            assert inputs["ids"].numel() <= 64
    assert runs[0][0] == runs[1][0]
    torch.manual_seed(2)
    assert torch.rand(1) == runs[1][1]


def test_overfitting_repeats_the_same_batches(csv_data, make_trainer):
    data, model = csv_data(val_fraction=0.0), TextRecorder()
    trainer = make_trainer(max_epochs=3, overfit_batches=2, limit_val_batches=0)
    trainer.fit(model, data)
    assert model.ids("train", 0) == model.ids("train", 1) == model.ids("train", 2)
    assert len(model.ids("train", 0)) == 16


def test_without_validation_or_test(csv_data, make_trainer):
    data, model = csv_data(val_fraction=0.0, test_fraction=0.0), TextRecorder()
    make_trainer().fit(model, data)
    assert {stage for stage, _ in model.seen} == {"train"}
    assert data.sizes == {"train": 100}
    assert data.baselines() == {}
    for verb, split in (("validate", "val"), ("test", "test")):
        with pytest.raises(UserError, match=rf"^data\.{split}_fraction: 0 leaves no {split} texts of .*; set it above"):
            getattr(make_trainer(), verb)(model, data)


def test_several_text_columns_numbers_as_labels_no_names_gzip(make_data, tmp_path):
    rows = [[str(number % 11 + 1), f"title{number}", "", f"body{number} same"] for number in range(44)]
    with gzip.open(tmp_path / "news.csv.gz", "wt", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    data = make_data(
        dataset="csv",
        path=str(tmp_path / "news.csv.gz"),
        columns=["class", "title", "empty", "body"],
        text_columns=["title", "empty", "body"],
        label_column="class",
        test_fraction=0.0,
        val_fraction=0.0,
    )
    assert data.class_names == [str(number) for number in range(1, 12)]
    data.prepare_data()
    data.setup()
    assert data.text("train", 12) == "title12  body12 same"
    order = data.train_dataloader().sampler.order
    labels = torch.cat([labels for _, labels in data.train_dataloader()])
    assert labels.equal(order % 11)


def test_generated_texts_through_a_run(make_data, make_trainer, monkeypatch):
    monkeypatch.setattr("litlab.data.text.sources._GENERATED", {"train": 40, "test": 12})
    data, model = make_data(dataset="generated"), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    assert data.generated
    assert data.state_dict()["generated"]
    assert data.description.startswith("GENERATED texts: 36 train / 4 val / 12 test texts of up to")
    assert len(model.ids("test", 1)) == 12


def test_two_processes_share_the_work(csv_data):
    seen = {split: [] for split in ("train", "val", "test")}
    for rank in range(2):
        data = csv_data(batch_size=4)
        data.prepare_data()
        data.trainer = a_rank(rank)
        data.setup()
        for split, orders in seen.items():
            orders.append(getattr(data, f"{split}_dataloader")().sampler.order)
    assert torch.cat(seen["test"]).sort().values.tolist() == list(range(10))
    assert torch.cat(seen["val"]).sort().values.tolist() == list(range(10))
    assert torch.cat(seen["train"]).sort().values.tolist() == list(range(80))


def test_the_baseline_is_the_most_frequent_class(csv_data):
    data = csv_data()
    data.prepare_data()
    data.setup()
    assert data.baselines() == {"most frequent class": {"test/acc": 0.5, "test/f1": pytest.approx(1 / 3)}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "csv"}, "data.path: null is not valid; dataset csv needs your file"),
        ({"test_path": "a.csv"}, "data.test_path: a.csv is not valid; it goes with dataset csv"),
        ({}, "data.dataset: null is not valid; set csv or generated"),
        ({"text_columns": []}, "data.text_columns: [] is not valid; name at least one"),
        (
            {"text_columns": ["a", "a"]},
            "data.text_columns: ['a', 'a'] is not valid; name each column once",
        ),
        (
            {"text_columns": ["a", "label"]},  # it would tell the answer
            "data.text_columns: ['a', 'label'] is not valid; label is data.label_column",
        ),
        ({"vocab_size": 2}, "data.vocab_size: 2 is not valid; it must be at least 3 for word"),
        (
            {"tokenizer": "bpe", "vocab_size": 299},
            "data.vocab_size: 299 is not valid; it must be at least 300 for bpe",
        ),
        (
            {"dataset": "csv", "path": "a.csv", "val_fraction": 0.5, "test_fraction": 0.5},
            "data.val_fraction: 0.5 is not valid; with data.test_fraction it must be below 1",
        ),
    ],
)
def test_impossible_values(options, message):
    with pytest.raises(UserError) as error:
        TextData(**({"dataset": "generated"} if options else {}) | options)
    assert str(error.value) == message
