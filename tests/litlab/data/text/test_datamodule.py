"""TextData as a whole: batches, the cache, and what a checkpoint carries."""

import os

import pandas as pd
import pytest
import torch

from tests.litlab.data.conftest import prepared, refusal, restore, write_and_read
from tests.litlab.data.text.conftest import all_texts, decode, make_rows, strip, write_csv


def test_batches_of_a_file(make_data):
    data = prepared(make_data())
    assert "80 train / 10 val / 10 test texts of up to 256 tokens, 2 classes" in data.description
    for split, texts in all_texts(data).items():
        for place, (inputs, labels) in enumerate(data.batches(split)):
            padding = inputs["ids"] == 0
            assert not padding.all(0).any()  # the longest text has none
            assert (padding.int().diff(dim=1) >= 0).all()  # padding comes last
            words = [decode(data, ids) for ids in strip(inputs)]
            assert ["good" in text for text in words] == (labels == 1).tolist()
            if split != "train":
                # As callbacks ask for them; the first word is unknown
                numbers = data.sample_index(split, place).tolist()
                assert [text[1:] for text in words] == [texts[n].split()[1:] for n in numbers]
    assert data.baselines()["TF-IDF + linear SVM"]["test/acc"] > 0.7


def test_crops_depend_on_seed_epoch_and_text_only_and_evaluation_reads_both_ends(make_data):
    data = prepared(make_data(max_tokens=6, long_texts="crop"), "fit")
    for number, ids in enumerate(strip(data.val_dataloader().dataset[torch.arange(10)][0])):
        words = data.text("val", number).split()
        assert decode(data, ids)[1:] == (words if len(words) < 12 else words[:6] + words[-6:])[1:]
    served = data.serving()  # an exported graph always reads both
    assert (served.most, served.encode(torch.ones(2, 3))["ids"].shape) == ({"time": 12}, (2, 9))

    loader = data.train_dataloader()
    texts, index, places = loader.dataset, torch.arange(80), set()
    texts_of = all_texts(data)["train"]
    for epoch in range(8):
        loader.sampler.set_epoch(epoch)
        pieces = strip(texts[index][0])
        assert strip(texts[index.flip(0)][0]) == pieces[::-1]
        for text, piece in zip(texts_of, pieces, strict=True):
            read = " ".join(decode(data, piece)[1:])
            assert read in text
            assert len(piece) == min(6, len(text.split()))
            places.add((piece[0] == 1, text.endswith(read)))  # the first word of a text is unknown
    assert len(places) == 4, "at the beginning, at the end, at neither, and whole"
    assert strip(texts[index + 80][0]) != pieces  # a text that comes twice in an epoch
    loader.sampler.seed = 1
    assert strip(texts[index][0]) != pieces


def test_a_cache_is_kept_until_settings_or_contents_change(make_data, reviews, tmp_path):
    def list_caches(**options):
        prepared(make_data(**options))
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").glob("texts-*")}

    kept = list_caches()
    assert list_caches(max_tokens=9, balance="even") == kept
    changes = {
        "tokenizer": "bpe", "vocab_size": 30, "val_fraction": 0.2, "test_fraction": 0.2,
        "fold": "1/4", "bad_rows": "drop", "path": pd.read_csv(reviews),
    }  # fmt: skip
    for count, (name, value) in enumerate(changes.items(), 2):
        assert len(list_caches(**{name: value})) == count
    status = reviews.stat()
    # Of the same size and date
    reviews.write_bytes(reviews.read_bytes().replace(b",good", b",gone"))
    os.utime(reviews, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(list_caches()) == count + 1
    assert len(list_caches(path=changes["path"].copy())) == count + 1


def test_a_test_file_is_no_part_of_folds_and_has_no_copies_of_training_texts(
    make_data, reviews, said
):
    test_path = str(reviews.parent / "test.csv")
    assert prepared(make_data(test_path=test_path)).sizes == {"train": 90, "val": 10, "test": 20}
    fold, plain = (
        prepared(make_data(fold="0/4", **options)) for options in ({"test_path": test_path}, {})
    )
    assert all_texts(fold) == all_texts(plain)
    assert not said
    rows = make_rows(100)
    write_csv(reviews.parent / "test.csv", [*rows[10:13], *rows[:3], ["another", "bad"]])
    prepared(make_data(test_path=test_path, val_fraction=0.0), "fit")
    assert "training has 6 test texts, too, so results look better than they are" in said[0]


# ---- the checkpoint, and prediction


def test_a_checkpoint_carries_what_raw_texts_need(make_data, tmp_path):
    """Elsewhere, without the training texts at hand: the texts of the test split, in order."""
    data = make_data(max_tokens=8, vocab_size=60)
    other, file = restore(data, batch_size=3), tmp_path / "in.txt"
    texts = all_texts(data)["test"]
    file.write_text("\n".join(texts), encoding="utf-8")
    other.predict_input = str(file)
    batches = list(other.predict_dataloader())
    ids, expected = (
        sorted(text for batch in some for text in strip(batch))
        for some in (batches, [inputs for inputs, _ in data.batches("test")])
    )
    assert ids == expected

    shares = [(batch["ids"] != 0).sum(1) / 100 for batch in batches]
    rows = write_and_read(other, *(torch.stack([share, 1 - share], 1) for share in shares))
    assert rows["row"].tolist() == [*map(str, range(1, 11))]
    assert rows["text"].tolist() == [text[:80] for text in texts]
    lengths = [min(8, len(text.split())) for text in texts]
    assert (100 * rows["bad"].astype(float)).tolist() == pytest.approx(lengths)
    assert set(rows["prediction"]) == {"good"}
    file.write_text(" \n")
    assert "in.txt has no texts; write" in refusal(other.open_input, str(file))


def test_settings_and_tokens_of_the_checkpoint_win(make_data, tmp_path):
    data = prepared(make_data(max_tokens=8, vocab_size=60))
    rows = [[f"new {text}", label] for text, label in make_rows(60, seed=2)]
    path = write_csv(tmp_path / "new.csv", rows)
    new = make_data(path=str(path), test_fraction=0.5, max_tokens=5)
    new.load_state_dict(data.state_dict())
    inputs, labels = next(new.batches("test"))
    assert inputs["ids"].shape[1] == new.max_tokens == 8
    for ids, label in zip(strip(inputs), labels.tolist(), strict=True):
        assert decode(data, ids[:3]) == ["[UNK]", "[UNK]", ("bad", "good")[label]]
