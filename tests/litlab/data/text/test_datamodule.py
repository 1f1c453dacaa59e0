"""TextData as a whole: through a trainer, as a run uses it."""

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer

from litlab.data import TextData
from litlab.data.text import datamodule
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import NewsData, TextRecorder, decode, make_rows, strip, write_csv


def all_texts(data):
    return {split: [data.text(split, number) for number in range(size)] for split, size in data.sizes.items()}


def test_facts_are_known_before_setup(make_data, few_generated):
    data = make_data(vocab_size=50, max_tokens=7)
    assert (data.class_names, data.num_classes, data.vocab_size, data.max_tokens) == (["bad", "good"], 2, 50, 7)
    news = make_data(NewsData, vocab_size=9)
    assert (news.num_classes, news.vocab_size, news.max_tokens, news.has_test) == (4, 9, 256, True)
    assert make_data(dataset="generated").num_classes == 4


def test_a_file_through_a_run(make_data, make_trainer, reviews):
    data, model = make_data(), TextRecorder()
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
        assert ["good" in decode(data, ids) for ids in strip(inputs)] == (labels == 1).tolist()

    trainer.test(model, data, verbose=False)
    assert torch.bincount(model.labels("test", 2)).tolist() == [5, 5]
    for split, epoch in (("val", 0), ("test", 2)):  # what callbacks ask for
        numbers = []
        for batch, (inputs, _) in enumerate(model.seen[split, epoch]):
            index = data.sample_index(split, batch).tolist()
            for number, ids in zip(index, strip(inputs), strict=True):
                assert decode(data, ids)[1:] == data.text(split, number).split()[1:]  # the first is unknown
            numbers += index
        assert sorted(numbers) == list(range(10)) != numbers


def test_folds_test_on_each_text_once_and_a_test_file_is_used_as_it_is(make_data, reviews):
    folds = [all_texts(prepared(make_data(fold=f"{number}/4"))) for number in range(4)]
    assert {tuple(map(len, fold.values())) for fold in folds} == {(65, 10, 25)}
    assert len({text for fold in folds for text in fold["test"]}) == 100
    test_path = str(reviews.parent / "test.csv")
    assert all_texts(prepared(make_data(fold="0/4", test_path=test_path))) == folds[0]  # the test file is left out
    data = prepared(make_data(test_path=test_path, test_fraction=0.5))
    assert data.sizes == {"train": 90, "val": 10, "test": 20}
    assert all_texts(data)["test"] == [text for text, _ in make_rows(20, seed=1)]


def test_the_tokenizer_learns_from_training_texts_alone(make_data, reviews):
    write_csv(reviews, [[f"own{i} own{i} all once{i}", str(i % 2)] for i in range(50)])
    data = prepared(make_data())
    known = Tokenizer.from_str(data.metadata.tokenizer).get_vocab()
    assert set(known) == {"[PAD]", "[UNK]", "all"} | {data.text("train", i).split()[0] for i in range(40)}


def test_a_frame_in_place_of_a_file(make_data, make_trainer, reviews, tmp_path):
    data = prepared(make_data(path=pd.read_csv(reviews)))
    assert all_texts(data) == all_texts(prepared(make_data()))
    make_trainer(max_steps=1).fit(TextRecorder(), data)
    data.trainer.save_checkpoint(tmp_path / "frame.ckpt")
    torch.load(tmp_path / "frame.ckpt", weights_only=True)  # the frame is not in it


def test_baselines(make_data, monkeypatch):
    data = prepared(make_data())
    assert data.baselines()["TF-IDF + linear SVM"]["test/acc"] > 0.7
    monkeypatch.setattr(datamodule, "_MOST_FOR_BASELINE", 79)
    assert data.baselines() == {}


def test_long_texts_are_cut_and_counted(make_data, said):
    data = make_data(max_tokens=6)
    lengths = {split: [inputs["ids"].shape[1] for inputs, _ in data.batches(split)] for split in ("train", "val")}
    assert max(lengths["train"]) == max(lengths["val"]) == 6
    count = sum(len(text.split()) > 6 for text in all_texts(data)["train"])
    message = f"{count} of 80 train texts are longer than data.max_tokens (6): data.long_texts is truncate"
    assert message in said


def test_crops_depend_on_seed_epoch_and_text_only_and_evaluation_reads_both_ends(make_data):
    data = prepared(make_data(max_tokens=6, long_texts="crop"), "fit")
    for number, ids in enumerate(strip(data.val_dataloader().dataset[torch.arange(10)][0])):
        words = data.text("val", number).split()
        assert decode(data, ids)[1:] == (words if len(words) < 12 else words[:6] + words[-6:])[1:]
    loader = data.train_dataloader()
    texts, index, starts = loader.dataset, torch.arange(80), set()
    for epoch in range(8):
        loader.sampler.set_epoch(epoch)
        pieces = strip(texts[index][0])
        assert [row for each in index.split(1) for row in strip(texts[each][0])] == pieces
        for number, piece in enumerate(pieces):
            words, read = data.text("train", number).split()[1:], decode(data, piece)
            places = [i for i in range(len(words)) if words[i : i + 6] == read]
            assert len(piece) == min(6, len(words) + 1)
            if len(words) == 12 and len(places) == 1:
                starts.add(places[0])
    assert {0, 6} < starts
    loader.sampler.seed = 1
    assert strip(texts[index][0]) != pieces
    assert strip(texts[index + 80][0]) != strip(texts[index][0])  # a text that comes twice in an epoch


def test_a_second_start_reads_and_tokenises_nothing(make_data, monkeypatch):
    def list_batches(data):
        return [(inputs["ids"].tolist(), labels.tolist()) for inputs, labels in data.batches("train")]

    first = list_batches(make_data())
    for name in ("read_corpus", "train_tokenizer", "encode"):
        monkeypatch.delattr(datamodule, name)
    assert list_batches(make_data()) == first


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer": "bpe", "vocab_size": 300}, {"val_fraction": 0.2}, {"test_fraction": 0.2}, {"fold": "1/4"},
        {"bad_rows": "drop"},
    ],
)  # fmt: skip
def test_other_settings_or_contents_make_another_cache(make_data, reviews, change):
    before = make_data().fingerprint
    assert make_data(**change).fingerprint != before == make_data(max_tokens=9).fingerprint
    reviews.write_bytes(reviews.read_bytes().replace(b",good", b",gone"))
    assert make_data().fingerprint != before


def test_copies_in_the_test_split_are_told(make_data, reviews, said):
    rows = make_rows(60)
    write_csv(reviews.parent / "test.csv", [*rows[10:13], *rows[:3], ["another", "bad"]])
    write_csv(reviews, rows)
    prepared(make_data(test_path=str(reviews.parent / "test.csv"), val_fraction=0.0), "fit")
    assert said == ["warning: 6 test texts are training texts too, so results look better than they are"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "csv"}, "data.path: it is not set; name your own data for data.dataset csv"),
        ({"dataset": "generated", "test_path": "a.csv"}, "data.path: it is not set"),
        ({"path": "a.csv", "text_columns": ["a", "label"]}, "data.text_columns: they have data.label_column, which"),
    ],
)
def test_settings_that_do_not_fit(options, message):
    assert refusal(TextData, **options).startswith(message)
