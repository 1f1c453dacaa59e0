"""TextData as a whole: through a trainer, as a run uses it."""

import os

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer

from litlab.data import TextData
from litlab.data.text import datamodule
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.text.conftest import TextRecorder, decode, make_rows, write_csv


def all_texts(data):
    return {split: [data.text(split, number) for number in range(size)] for split, size in data.sizes.items()}


def test_facts_are_known_before_setup(make_data, csv_data, few_generated):
    data = csv_data(vocab_size=50, max_tokens=7)
    assert (data.class_names, data.num_classes, data.vocab_size, data.max_tokens) == (["bad", "good"], 2, 50, 7)
    assert (prepared(csv_data()).has_test, prepared(csv_data(test_fraction=0.0)).has_test) == (True, False)
    assert make_data(dataset="news").class_names == ["World", "Sports", "Business", "Sci/Tech"]
    assert make_data(dataset="generated").num_classes == 4


def test_csv_through_a_run(csv_data, make_trainer, reviews):
    data, model = csv_data(), TextRecorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, data)
    assert data.description == (
        f"csv {reviews}: 80 train / 10 val / 10 test texts of up to 256 tokens, 2 classes, a vocabulary of up to 20,000"
    )
    for inputs, labels in model.seen["train", 0]:
        assert inputs["ids"].dtype == labels.dtype == torch.int64
        assert len(inputs["ids"]) == len(labels) == 8
        padding = inputs["ids"] == 0
        assert not padding.all(0).any()  # the longest text has none
        assert (padding.int().diff(dim=1) >= 0).all()  # padding comes last
    assert model.ids("train", 0) != model.ids("train", 1)
    assert sorted(model.ids("train", 0)) == sorted(model.ids("train", 1))
    for inputs, labels in [*model.seen["val", 0], *model.seen["train", 0]]:
        words = [decode(data, [i for i in row if i]) for row in inputs["ids"].tolist()]
        assert ["good" in row for row in words] == (labels == 1).tolist()
    trainer.test(model, data, verbose=False)
    assert torch.bincount(model.labels("test", 2)).tolist() == [5, 5]


def test_batches_of_evaluation_know_their_texts(csv_data, make_trainer):
    data, model = csv_data(batch_size=3), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    for split, epoch in (("val", 0), ("test", 1)):
        numbers = []
        for batch, (inputs, _) in enumerate(model.seen[split, epoch]):
            index = data.sample_index(split, batch).tolist()
            for number, ids in zip(index, inputs["ids"].tolist(), strict=True):
                words = decode(data, [token for token in ids if token])
                assert words[1:] == data.text(split, number).split()[1:]  # the first is unknown
            numbers += index
        assert sorted(numbers) == list(range(10)) != numbers


def test_every_text_is_in_one_split_whatever_the_seed(csv_data):
    first, second = (prepared(csv_data(seed=seed)) for seed in (0, 1))
    assert all_texts(first) == all_texts(second)
    assert {split: len(set(texts)) for split, texts in all_texts(first).items()} == {"train": 80, "val": 10, "test": 10}
    assert len({text for texts in all_texts(first).values() for text in texts}) == 100
    orders = [torch.cat(list(data.train_dataloader().sampler)) for data in (first, second)]
    assert not orders[0].equal(orders[1])


def test_folds_test_on_each_text_once(csv_data, reviews):
    folds = [all_texts(prepared(csv_data(fold=f"{number}/5"))) for number in range(5)]
    assert [{split: len(texts) for split, texts in fold.items()} for fold in folds] == [
        {"train": 70, "val": 10, "test": 20}
    ] * 5
    assert len({text for fold in folds for text in fold["test"]}) == 100
    with_test = prepared(csv_data(fold="0/5", test_path=str(reviews.parent / "test.csv")))
    assert all_texts(with_test) == folds[0]  # the test file is left out


def test_the_tokenizer_learns_from_training_texts_alone(csv_data, reviews):
    write_csv(reviews, [["text", "label"], *([f"own{i} own{i} all once{i}", str(i % 2)] for i in range(50))])
    data = prepared(csv_data())
    known = Tokenizer.from_str(data.state_dict()["tokenizer"]).get_vocab()
    assert set(known) == {"[PAD]", "[UNK]", "all"} | {data.text("train", i).split()[0] for i in range(40)}


def test_a_test_file_is_used_as_it_is(csv_data, reviews):
    data = prepared(csv_data(test_path=str(reviews.parent / "test.csv"), test_fraction=0.5))
    assert data.sizes == {"train": 90, "val": 10, "test": 20}
    assert all_texts(data)["test"] == [text for text, _ in make_rows(20, seed=1)]


def test_a_path_or_a_frame_is_enough(make_data, csv_data, make_trainer, reviews, tmp_path):
    expected = all_texts(prepared(csv_data()))
    for path in (str(reviews), pd.read_csv(reviews)):
        data = prepared(make_data(path=path))
        assert data.dataset == "csv"
        assert all_texts(data) == expected
    assert data.description.startswith("csv frame: 80 train")
    make_trainer().fit(TextRecorder(), data)
    data.trainer.save_checkpoint(tmp_path / "frame.ckpt")
    torch.load(tmp_path / "frame.ckpt", weights_only=True)  # the frame is not in it
    assert refusal(prepared, make_data(path=str(tmp_path / "gone.csv"))) == (
        f"data.path: there is no file {tmp_path / 'gone.csv'}"
    )


def test_a_run_repeats_exactly_and_leaves_the_global_generator_alone(csv_data, make_trainer):
    runs = []
    for _ in range(2):
        data, model = csv_data(seed=5, tokens_per_batch=64), TextRecorder()
        torch.manual_seed(2)
        make_trainer(max_epochs=3).fit(model, data)
        assert torch.rand(1).equal(torch.rand(1, generator=torch.Generator().manual_seed(2)))
        assert max(inputs["ids"].numel() for inputs, _ in model.seen["train", 0]) <= 64
        runs.append([model.ids("train", epoch) for epoch in range(3)])
    assert runs[0] == runs[1]


def test_two_processes_share_the_work(csv_data):
    seen = {"train": [], "val": [], "test": []}
    for rank in range(2):
        data = csv_data(batch_size=4)
        data.prepare_data()
        data.trainer = a_rank(rank)
        data.setup()
        for split, orders in seen.items():
            orders.extend(getattr(data, f"{split}_dataloader")().sampler.batches())
    assert {split: torch.cat(orders).sort().values.tolist() for split, orders in seen.items()} == {
        "train": list(range(80)), "val": list(range(10)), "test": list(range(10))
    }  # fmt: skip


def test_without_validation_or_test(csv_data, make_trainer):
    data, model = csv_data(val_fraction=0.0, test_fraction=0.0), TextRecorder()
    make_trainer().fit(model, data)
    assert {stage for stage, _ in model.seen} == {"train"}
    assert (data.sizes, data.baselines()) == ({"train": 100}, {})
    assert "no test texts" in refusal(make_trainer().test, model, data)


def test_generated_texts_through_a_run(make_data, make_trainer, few_generated):
    data, model = make_data(dataset="generated"), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.test(model, data, verbose=False)
    assert data.state_dict()["generated"]
    assert data.description.startswith("GENERATED texts: 36 train / 4 val / 8 test texts of up to")
    assert len(model.ids("test", 1)) == 8


def test_baselines(csv_data, monkeypatch):
    data = prepared(csv_data())
    scores = data.baselines()
    assert scores["most frequent class"] == {"test/acc": 0.5, "test/f1": pytest.approx(1 / 3)}
    assert scores["TF-IDF + linear SVM"]["test/acc"] > 0.7
    monkeypatch.setattr(datamodule, "_MOST_FOR_BASELINE", 79)
    assert data.baselines() == {}


# ---- long texts


def test_long_texts_are_cut_counted_and_reported(csv_data, make_trainer, said):
    data, model = csv_data(max_tokens=6), TextRecorder()
    make_trainer(max_epochs=2).fit(model, data)
    count = sum(len(text.split()) > 6 for text in all_texts(data)["train"])
    lines = [line for line in said.messages if "longer than" in line]
    assert lines[1] == f"{count} of 80 train texts are longer than data.max_tokens (6): data.long_texts is truncate"
    assert len(lines) == 2  # train and val
    assert max(map(len, model.ids("train"))) == max(map(len, model.ids("val"))) == 6


def test_crops_depend_on_seed_epoch_and_text_only_and_evaluation_reads_both_ends(csv_data):
    data = prepared(csv_data(max_tokens=6, long_texts="crop"), "fit")
    ends = data.samples("val")
    for number, row in enumerate(ends[torch.arange(10)][0]["ids"].tolist()):
        words, read = data.text("val", number).split(), decode(data, [i for i in row if i])
        assert read[1:] == (words if len(words) < 12 else words[:6] + words[-6:])[1:]
    loader = data.train_dataloader()
    texts, index = loader.dataset, torch.arange(80)
    starts = set()
    for epoch in range(8):
        loader.sampler.set_epoch(epoch)
        pieces = [[i for i in row if i] for row in texts[index][0]["ids"].tolist()]
        assert [row for one in index.split(1) for row in texts[one][0]["ids"].tolist()] == pieces
        for number, piece in enumerate(pieces):
            words, read = data.text("train", number).split()[1:], decode(data, piece)
            places = [i for i in range(len(words)) if words[i : i + 6] == read]
            assert len(piece) == min(6, len(words) + 1)
            if len(words) == 12 and len(places) == 1:
                starts.add(places[0])
    assert len(starts) > 4
    before = texts[index][0]["ids"]
    loader.sampler.seed = 1
    assert not before.equal(texts[index][0]["ids"])


# ---- the cache


def test_a_second_start_reads_and_tokenises_nothing(csv_data, monkeypatch):
    first = [(inputs["ids"].tolist(), labels.tolist()) for inputs, labels in csv_data().batches("train")]

    def refuse(*_, **__):
        raise AssertionError("read again")

    monkeypatch.setattr(datamodule, "read_corpus", refuse)
    monkeypatch.setattr(datamodule, "store_corpus", refuse)
    data = csv_data()
    assert data.class_names == ["bad", "good"]
    assert [(inputs["ids"].tolist(), labels.tolist()) for inputs, labels in data.batches("train")] == first


def test_the_file_is_read_once(csv_data, monkeypatch):
    calls = []
    read_corpus = datamodule.read_corpus
    monkeypatch.setattr(datamodule, "read_corpus", lambda *options: calls.append(options) or read_corpus(*options))
    data = csv_data()
    assert data.num_classes == prepared(data).num_classes == 2
    assert len(calls) == 1


def test_other_content_of_the_same_size_and_time_is_seen(csv_data, reviews):
    before = prepared(csv_data())
    status, content = reviews.stat(), reviews.read_bytes()
    reviews.write_bytes(content.replace(b"number0x7 ", b"NUMBER0X7 ").replace(b",good", b",gone"))
    os.utime(reviews, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (reviews.stat().st_size, reviews.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = prepared(csv_data())
    assert (before.class_names, after.class_names) == (["bad", "good"], ["bad", "gone"])
    assert "NUMBER0X7" in str(all_texts(after))


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer": "bpe", "vocab_size": 300}, {"vocab_size": 10}, {"val_fraction": 0.2}, {"test_fraction": 0.2},
        {"fold": "1/4"}, {"bad_rows": "drop"},
    ],
)  # fmt: skip
def test_other_settings_make_another_cache(csv_data, change):
    assert csv_data(**change).fingerprint != csv_data().fingerprint == csv_data(max_tokens=9).fingerprint


def test_odd_classes_and_copies_are_told(csv_data, reviews, said):
    rows = [[text, label.upper() if number < 6 else label] for number, (text, label) in enumerate(make_rows(60))]
    write_csv(reviews, [["text", "label"], *rows])
    write_csv(reviews.parent / "test.csv", [["text", "label"], *rows[10:13], *rows[:3]])
    data = prepared(csv_data(test_path=str(reviews.parent / "test.csv"), val_fraction=0.0), "fit")
    assert data.class_names == ["BAD", "GOOD", "bad", "good"]
    assert said.messages == [
        "warning: data.label_column: classes differ only in how they are written: bad, good",
        "warning: 6 test texts are training texts too, so results look better than they are",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "csv"}, "data.path: it is not set; name your own data for data.dataset csv"),
        ({}, "data.dataset: it is not set; use --data.path FILE, or --data.dataset generated"),
        (
            {"dataset": "generated", "test_path": "a.csv"},
            "data.path: it is not set; name your own data for data.dataset csv",
        ),
        (
            {"path": "a.csv", "text_columns": ["a", "label"]},  # it would tell the answer
            "data.text_columns: they have data.label_column, which tells the answer; leave it out",
        ),
        (
            {"path": "a.csv", "balance": "even", "tokens_per_batch": 9},
            "data.balance: it does not go with data.tokens_per_batch; leave one of them out",
        ),
    ],
)
def test_settings_that_do_not_fit(options, message):
    assert refusal(TextData, **options) == message


def test_classes_can_be_balanced(csv_data, reviews):
    rows = make_rows(100)
    write_csv(reviews, [["text", "label"], *(row for row in rows if row[1] == "good"), *rows[:20:2]])
    labels = torch.cat([labels for _, labels in csv_data(balance="even").batches("train")])
    assert np.abs(np.diff(torch.bincount(labels).numpy())) <= 8
