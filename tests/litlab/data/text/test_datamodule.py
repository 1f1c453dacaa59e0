"""TextData as a whole: through a trainer, as a run uses it."""

import pytest
import torch
from tokenizers import Tokenizer

from litlab.data.text import datamodule
from tests.litlab.data.conftest import prepared
from tests.litlab.data.text.conftest import NewsData, TextRecorder, decode, make_rows, strip, write_csv


def all_texts(data):
    return {split: [data.text(split, number) for number in range(size)] for split, size in data.sizes.items()}


def test_facts_are_known_before_setup(make_data, few_generated):
    data = make_data(NewsData, vocab_size=9)
    assert (data.num_classes, data.vocab_size, data.max_tokens, data.has_test) == (4, 9, 256, True)
    assert make_data(dataset="generated").num_classes == 4


def test_a_file_through_a_run(make_data, make_trainer, reviews):
    data, model = make_data(), TextRecorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, data)
    assert data.description == (
        f"csv {reviews}: 80 train / 10 val / 10 test texts of up to 256 tokens, 2 classes, a vocabulary of up to 20,000"
    )
    for inputs, _ in model.seen["train", 0]:
        padding = inputs["ids"] == 0
        assert len(padding) == 8
        assert not padding.all(0).any()  # the longest text has none
        assert (padding.int().diff(dim=1) >= 0).all()  # padding comes last
    assert model.ids("train", 0) != model.ids("train", 1)
    assert sorted(model.ids("train", 0)) == sorted(model.ids("train", 1))
    for inputs, labels in [*model.seen["val", 0], *model.seen["train", 0]]:
        assert ["good" in decode(data, ids) for ids in strip(inputs)] == (labels == 1).tolist()

    trainer.test(model, data, verbose=False)
    assert torch.bincount(model.labels("test", 2)).tolist() == [5, 5]
    numbers = torch.cat([data.sample_index("test", batch) for batch in (0, 1)]).tolist()  # as callbacks ask for them
    for number, ids in zip(numbers, model.ids("test", 2), strict=True):
        assert decode(data, ids)[1:] == data.text("test", number).split()[1:]  # the first is unknown
    assert sorted(numbers) == list(range(10)) != numbers


def test_a_test_file_is_used_as_it_is_and_not_in_folds(make_data, reviews):
    test_path = str(reviews.parent / "test.csv")
    fold = prepared(make_data(fold="0/4", test_path=test_path))
    assert all_texts(fold) == all_texts(prepared(make_data(fold="0/4")))
    data = prepared(make_data(test_path=test_path, test_fraction=0.5))
    assert data.sizes == {"train": 90, "val": 10, "test": 20}
    assert all_texts(data)["test"] == [text for text, _ in make_rows(20, seed=1)]


def test_the_tokenizer_learns_from_training_texts_alone(make_data, reviews):
    write_csv(reviews, [[f"own{i} own{i} all once{i}", str(i % 2)] for i in range(50)])
    data = prepared(make_data())
    known = Tokenizer.from_str(data.metadata.tokenizer).get_vocab()
    assert set(known) == {"[PAD]", "[UNK]", "all"} | {data.text("train", i).split()[0] for i in range(40)}


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
            places = [place for place in range(len(words)) if words[place : place + 6] == read]
            assert len(piece) == min(6, len(words) + 1)
            if len(words) == 12 and len(places) == 1:
                starts.add(places[0])
    assert {0, 6} < starts
    assert strip(texts[index + 80][0]) != pieces  # a text that comes twice in an epoch
    loader.sampler.seed = 1
    assert strip(texts[index][0]) != pieces


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
