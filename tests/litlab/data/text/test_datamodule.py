"""TextData as a whole: through a trainer, as a run uses it."""

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer

from litlab.data import TextData
from litlab.data.text import datamodule
from tests.litlab.data.conftest import prepared, refusal
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


def test_without_validation_or_test(csv_data, make_trainer):
    data, model = csv_data(val_fraction=0.0, test_fraction=0.0), TextRecorder()
    make_trainer().fit(model, data)
    assert {stage for stage, _ in model.seen} == {"train"}
    assert (data.sizes, data.baselines()) == ({"train": 100}, {})
    assert "no test texts" in refusal(make_trainer().test, model, data)


def test_baselines(csv_data, monkeypatch):
    data = prepared(csv_data())
    scores = data.baselines()
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
    monkeypatch.setattr(datamodule, "train_tokenizer", refuse)
    monkeypatch.setattr(datamodule, "encode", refuse)
    data = csv_data()
    assert data.class_names == ["bad", "good"]
    assert [(inputs["ids"].tolist(), labels.tolist()) for inputs, labels in data.batches("train")] == first


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer": "bpe", "vocab_size": 300}, {"vocab_size": 10}, {"val_fraction": 0.2}, {"test_fraction": 0.2},
        {"fold": "1/4"}, {"bad_rows": "drop"},
    ],
)  # fmt: skip
def test_other_settings_or_contents_make_another_cache(csv_data, reviews, change):
    before = csv_data().fingerprint
    assert csv_data(**change).fingerprint != before == csv_data(max_tokens=9).fingerprint
    reviews.write_bytes(reviews.read_bytes().replace(b",good", b",gone"))
    assert csv_data().fingerprint != before
    assert csv_data().class_names == ["bad", "gone"]


def test_facts_that_were_asked_for_first_change_no_batches(csv_data, reviews):
    rows = make_rows(100)
    write_csv(reviews, [["text", "label"], *(row for row in rows if row[1] == "good"), *rows[:20:2]])
    data = csv_data(balance="even")
    assert data.num_classes == 2
    labels = torch.cat([labels for _, labels in data.batches("train")])
    assert np.abs(np.diff(torch.bincount(labels).numpy())) <= 8


def test_odd_classes_and_copies_are_told(csv_data, reviews, said):
    rows = [[text, label.upper() if number < 6 else label] for number, (text, label) in enumerate(make_rows(60))]
    write_csv(reviews, [["text", "label"], *rows])
    write_csv(reviews.parent / "test.csv", [["text", "label"], *rows[10:13], *rows[:3]])
    data = prepared(csv_data(test_path=str(reviews.parent / "test.csv"), val_fraction=0.0), "fit")
    assert data.class_names == ["BAD", "GOOD", "bad", "good"]
    assert said.messages == [
        "warning: 6 test texts are training texts too, so results look better than they are",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "csv"}, "data.path: it is not set; name your own data for data.dataset csv"),
        ({}, "data.dataset: it is not set; use --data.dataset csv --data.path FILE, or --data.dataset generated"),
        (
            {"dataset": "generated", "test_path": "a.csv"},
            "data.path: it is not set; name your own data for data.dataset csv",
        ),
        (
            {"path": "a.csv", "text_columns": ["a", "label"]},  # it would tell the answer
            "data.text_columns: they have data.label_column, which tells the answer; leave it out",
        ),
    ],
)
def test_settings_that_do_not_fit(options, message):
    assert refusal(TextData, **options) == message
