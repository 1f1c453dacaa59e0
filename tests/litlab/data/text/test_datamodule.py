"""TextData as a whole: through a trainer, as a run uses it."""

import os

import pandas as pd
import pytest
import torch

from tests.litlab.data.conftest import prepared, refusal, write_and_read
from tests.litlab.data.text.conftest import (
    TextRecorder,
    all_texts,
    decode,
    make_rows,
    strip,
    write_csv,
)


def test_a_file_through_a_run(make_data, make_trainer, reviews):
    data, model = make_data(), TextRecorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, data)
    assert "80 train / 10 val / 10 test texts of up to 256 tokens, 2 classes" in data.description
    for inputs, _ in model.seen["train", 0]:
        padding = inputs["ids"] == 0
        assert len(padding) == 8
        assert not padding.all(0).any()  # the longest text has none
        assert (padding.int().diff(dim=1) >= 0).all()  # padding comes last
    for inputs, labels in [*model.seen["val", 0], *model.seen["train", 0]]:
        assert ["good" in decode(data, ids) for ids in strip(inputs)] == (labels == 1).tolist()

    trainer.test(model, data, verbose=False)
    # As callbacks ask for them
    numbers = torch.cat([data.sample_index("test", batch) for batch in (0, 1)]).tolist()
    for number, ids in zip(numbers, model.ids("test", 2), strict=True):
        # The first is unknown
        assert decode(data, ids)[1:] == data.text("test", number).split()[1:]
    assert sorted(numbers) == list(range(10)) != numbers
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


@pytest.fixture
def trained(make_data, make_trainer, tmp_path):
    """The data of a checkpoint, the model and the file."""
    data, model, trainer = make_data(max_tokens=8, vocab_size=60), TextRecorder(), make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    trainer.test(model, data, verbose=False)
    return data, model, tmp_path / "model.ckpt"


def test_a_checkpoint_carries_what_raw_texts_need(trained, make_data, make_trainer, tmp_path):
    """Elsewhere, without the training texts at hand: the texts of the test split, in order."""
    data, model, file = trained
    texts = [data.text("test", number) for number in range(10)]
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    other = make_data(path=str(tmp_path / "gone.csv"), batch_size=3)
    other.predict_input = str(tmp_path / "in.txt")
    outputs = make_trainer().predict(model, other, ckpt_path=file, weights_only=True)
    assert sorted(model.ids("predict")) == sorted(model.ids("test", 1))

    rows = write_and_read(other, *outputs)
    assert rows["row"].tolist() == [*map(str, range(1, 11))]
    assert rows["text"].tolist() == [text[:80] for text in texts]
    lengths = [min(8, len(text.split())) for text in texts]
    assert (100 * rows["bad"].astype(float)).tolist() == pytest.approx(lengths)
    assert set(rows["prediction"]) == {"good"}
    (tmp_path / "in.txt").write_text(" \n")
    assert "in.txt has no texts; write" in refusal(other.open_input, str(tmp_path / "in.txt"))


def test_settings_and_tokens_of_the_checkpoint_win(trained, make_data, make_trainer, tmp_path):
    data, model, file = trained
    rows = [[f"new {text}", label] for text, label in make_rows(60, seed=2)]
    write_csv(tmp_path / "new.csv", rows)
    new = make_data(path=str(tmp_path / "new.csv"), test_fraction=0.5, max_tokens=5)
    make_trainer().test(model, new, ckpt_path=file, weights_only=True, verbose=False)
    assert max(map(len, model.ids("test", model.current_epoch))) == new.max_tokens == 8
    inputs, labels = model.seen["test", model.current_epoch][0]
    for ids, label in zip(strip(inputs), labels.tolist(), strict=True):
        assert decode(data, ids[:3]) == ["[UNK]", "[UNK]", ("bad", "good")[label]]
