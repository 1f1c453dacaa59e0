"""TextData as a whole: batches, the cache, and what a checkpoint carries."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch.nn.functional import pad

from tests.litlab.data.conftest import prepared, refusal, restore, write_and_read
from tests.litlab.data.text.conftest import all_texts, decode, strip

CLASSES = ["sun", "rain", "snow", "wind"]  # the words that tell them


def test_batches_of_a_file(make_data):
    data = prepared(make_data())
    assert "128 train / 16 val / 16 test texts of up to 256 tokens, 4 classes" in data.description
    for split, texts in all_texts(data).items():
        for place, (inputs, labels) in enumerate(data.batches(split)):
            padding = inputs["ids"] == 0
            assert not padding.all(0).any()  # the longest text has none
            assert (padding.int().diff(dim=1) >= 0).all()  # padding comes last
            words = [decode(data, ids) for ids in strip(inputs)]
            assert all(CLASSES[label] in text for text, label in zip(words, labels, strict=True))
            if split != "train":
                # As callbacks ask for them
                numbers = data.sample_index(split, place).tolist()
                assert words == [texts[number].split() for number in numbers]
    assert data.baselines()["TF-IDF + linear SVM"]["test/acc"] > 0.7


def test_crops_depend_on_seed_epoch_and_text_only_and_evaluation_reads_both_ends(make_data):
    data = prepared(make_data(max_tokens=9, long_texts="crop"), "fit")
    whole = all_texts(data)
    ids = strip(data.val_dataloader().dataset[torch.arange(16)][0])
    for text, both in zip(whole["val"], ids, strict=True):
        words = text.split()
        assert decode(data, both) == (words if len(words) < 18 else words[:9] + words[-9:])
    served = data.serving()  # an exported graph always reads both
    assert (served.most, served.encode(torch.ones(2, 3))["ids"].shape) == ({"time": 18}, (2, 12))

    loader = data.train_dataloader()
    texts, index, places = loader.dataset, torch.arange(128), set()
    for epoch in range(8):
        loader.sampler.set_epoch(epoch)
        pieces = strip(texts[index][0])
        assert strip(texts[index.flip(0)][0]) == pieces[::-1]
        for text, piece in zip(whole["train"], pieces, strict=True):
            read = " ".join(decode(data, piece))
            assert read in text
            assert len(piece) == min(9, len(text.split()))
            places.add((text.startswith(read), text.endswith(read)))
    assert len(places) == 4, "at the beginning, at the end, at neither, and whole"
    assert strip(texts[index + 128][0]) != pieces  # a text that comes twice in an epoch
    loader.sampler.seed = 1
    assert strip(texts[index][0]) != pieces


def test_a_cache_is_kept_until_settings_or_contents_change(make_data, texts):
    file = Path(shutil.copy(texts, "my.csv"))

    def list_caches(**options):
        prepared(make_data(**{"path": file, **options}))
        return {path: path.stat().st_mtime_ns for path in Path("data/cache").glob("texts-*")}

    kept = list_caches()
    assert list_caches(max_tokens=9, balance="even") == kept
    changes = {
        "tokenizer": "bpe", "vocab_size": 30, "val_fraction": 0.2, "test_fraction": 0.2,
        "fold": "1/4", "bad_rows": "drop", "path": pd.read_csv(texts),
    }  # fmt: skip
    for count, (name, value) in enumerate(changes.items(), 2):
        assert len(list_caches(**{name: value})) == count
    status = file.stat()
    # Of the same size and date
    file.write_bytes(file.read_bytes().replace(b"class_3", b"class_4"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(list_caches()) == count + 1
    assert len(list_caches(path=changes["path"].copy())) == count + 1


def test_a_test_file_is_no_part_of_folds_and_has_no_copies_of_training_texts(
    make_data, texts, said
):
    rows = pd.read_csv(texts)
    other = {"test_path": rows[:20].assign(text="new")}
    assert prepared(make_data(**other)).sizes == {"train": 144, "val": 16, "test": 20}
    fold, plain = (prepared(make_data(fold="0/4", **options)) for options in (other, {}))
    assert all_texts(fold) == all_texts(plain)
    assert not said
    prepared(make_data(test_path=rows[:6], val_fraction=0.0), "fit")
    assert "training has 6 test texts, too, so results look better than they are" in said[0]


# ---- the checkpoint, and prediction


def test_a_checkpoint_carries_what_raw_texts_need(make_data):
    """Elsewhere, without the training texts at hand: the texts of the test split, in order."""
    data = make_data(max_tokens=20)
    other, file = restore(data, batch_size=3), Path("in.txt")
    texts = all_texts(data)["test"]
    file.write_text("\n".join(texts), encoding="utf-8")
    other.predict_input = str(file)
    batches = list(other.predict_dataloader())
    read = {" ".join(decode(data, ids)) for batch in batches for ids in strip(batch)}
    assert read == {" ".join(text.split()[:20]) for text in texts}

    lengths = [(batch["ids"] != 0).sum(1, keepdim=True) / 100 for batch in batches]
    rows = write_and_read(other, *(pad(length, (0, 3)) for length in lengths))
    assert rows["row"].tolist() == [*map(str, range(1, 17))]
    assert rows["text"].tolist() == [text[:80] for text in texts]
    expected = [min(20, len(text.split())) / 100 for text in texts]
    assert rows["class_0"].astype(float).tolist() == pytest.approx(expected)
    assert set(rows["prediction"]) == {"class_0"}
    other.trainer = SimpleNamespace(predicting=True)
    other.prepare_data()  # of which nothing is here
    file.write_text(" \n")
    assert "in.txt has no texts; write" in refusal(other.open_input, str(file))


def test_settings_and_tokens_of_the_checkpoint_win(make_data, texts):
    data, rows = prepared(make_data(max_tokens=8)), pd.read_csv(texts)
    new = make_data(path=rows.assign(text="new new " + rows["text"]), max_tokens=5)
    new.load_state_dict(data.state_dict())
    (inputs, _), *_ = new.batches("test")
    assert inputs["ids"].shape[1] == new.max_tokens == 8
    for ids, number in zip(strip(inputs), new.sample_index("test", 0).tolist(), strict=True):
        words = new.text("test", number).split()[2:8]
        assert decode(data, ids) == ["[UNK]", "[UNK]", *words]
