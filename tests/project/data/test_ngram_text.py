"""NgramTextData as a whole: its caches, its checkpoints, its baseline."""

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch

from litlab.data import StreamedTexts
from litlab.data.shards import new_shards
from litlab.errors import UserError
from project.data.ngram_text import NgramTextData
from project.models.transformer_classifier import TransformerClassifier
from tests.litlab.data.conftest import make_trainer as make_trainer
from tests.litlab.data.text.conftest import TextRecorder, decode, make_rows, write_csv
from tests.litlab.data.text.conftest import reviews as reviews


@pytest.fixture
def csv_data(tmp_path, reviews):
    def make(**options) -> NgramTextData:
        cache = {"cache_dir": str(tmp_path / "cache"), "batch_size": 8}
        return NgramTextData(**{**cache, "dataset": "csv", "path": str(reviews), **options})

    return make


def test_features_are_known_before_anything_is_counted(csv_data):
    assert csv_data(ngrams=2).ngram_features == 4
    assert csv_data().ngram_features == 0


@pytest.mark.parametrize("ngrams", [-1, 6])
def test_lengths_that_are_refused(csv_data, ngrams):
    with pytest.raises(UserError, match=rf"^data\.ngrams: {ngrams} is not valid; it must be from 0 to 5$"):
        csv_data(ngrams=ngrams)


def test_features_come_with_each_token(csv_data, make_trainer):
    data, model = csv_data(ngrams=2, max_tokens=8), TextRecorder()
    make_trainer().fit(model, data)
    for stage in ("train", "val"):
        for inputs, labels in model.seen[stage, 0]:
            features = inputs["ngram_features"]
            assert features.shape == (*inputs["ids"].shape, data.ngram_features)
            assert features.dtype == torch.float32
            assert (features[inputs["ids"] == 0] == 0).all()
            # The second token is "good" or "bad", which tells the class; unigrams of both classes come first.
            assert features[:, 1, :2].argmax(1).equal(labels)
            assert (features[:, 1, :2].amax(1) > 1).all()


def test_a_second_start_reads_no_csv_and_counts_nothing(csv_data, make_trainer, monkeypatch):
    def expected(data):
        data.prepare_data()
        data.setup("fit")
        return [(x["ids"].tolist(), x["ngram_features"].tolist(), y.tolist()) for x, y in data.train_dataloader()]

    first = expected(csv_data(ngrams=2))

    def refuse(*_, **__):
        raise AssertionError("read again")

    for name in ("sources.read_rows", "stored.train_tokenizer", "stored.encode"):
        monkeypatch.setattr(f"litlab.data.text.{name}", refuse)
    monkeypatch.setattr("project.data.ngram_text.count_ngrams", refuse)
    data = csv_data(ngrams=2)
    assert data.class_names == ["bad", "good"]
    assert expected(data) == first


def test_runs_that_begin_at_once_tokenise_and_count_once(csv_data, monkeypatch):
    """As the first trials of a sweep with several workers do."""
    done = []

    def slowly(fill, folder):
        done.append(folder.name.rpartition("-")[2])
        time.sleep(0.2)
        fill(folder)

    caches = NgramTextData.caches
    monkeypatch.setattr(
        NgramTextData, "caches", lambda self: {folder: partial(slowly, fill) for folder, fill in caches(self).items()}
    )

    def begin(_: int) -> None:
        data = csv_data(ngrams=1)
        data.prepare_data()
        data.setup("fit")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(begin, range(3)))
    assert len(done) == 2
    assert done[1] == "ngrams1"


def test_damaged_caches_are_made_anew(csv_data, caplog):
    data = csv_data(ngrams=1)
    data.prepare_data()
    before = {path: path.read_bytes() for folder in data.cache_dir.iterdir() for path in folder.glob("*.npy")}
    for path in before:
        if path.name in ("train_ids.npy", "hashes1.npy"):
            path.write_bytes(before[path][:-1] + b"x")
    with caplog.at_level(logging.INFO, "lightning.pytorch.utilities.rank_zero"):
        csv_data(ngrams=1).prepare_data()
    assert sum("the cache is damaged" in message for message in caplog.messages) == 2
    assert {path: path.read_bytes() for path in before} == before


def test_checkpoint_carries_the_counts(csv_data, make_trainer, tmp_path):
    data, model = csv_data(ngrams=2, max_tokens=8, vocab_size=60), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    assert torch.load(tmp_path / "model.ckpt", weights_only=True)["NgramTextData"]["ngrams"] == 2
    again = NgramTextData.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert dict(again.hparams) == dict(data.hparams)
    trainer.test(model, data, verbose=False)

    # Elsewhere, with neither the training texts nor their settings at hand: the texts of the test split, in order.
    texts = [data.text("test", i) for i in range(10)]
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    other = csv_data(path=str(tmp_path / "gone.csv"), batch_size=3, cache_dir=str(tmp_path / "none"))
    other.predict_input = str(tmp_path / "in.txt")
    make_trainer().predict(model, other, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
    assert (other.num_classes, other.max_tokens, other.vocab_size, other.ngram_features) == (2, 8, 60, 4)
    tested, predicted = model.seen["test", 1], model.seen["predict", 0]
    rows = {
        tuple(i for i in ids if i): features
        for inputs, _ in tested
        for ids, features in zip(inputs["ids"].tolist(), inputs["ngram_features"], strict=True)
    }
    assert len(rows) == 10
    for inputs in predicted:
        for ids, features in zip(inputs["ids"].tolist(), inputs["ngram_features"], strict=True):
            real = [i for i in ids if i]
            assert features[: len(real)].equal(rows[tuple(real)][: len(real)])


def test_other_texts_are_read_with_the_checkpoints_tokenizer(csv_data, make_trainer, tmp_path):
    data, model = csv_data(ngrams=1), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    write_csv(tmp_path / "new.csv", [["text", "label"], *([f"new {t}", y] for t, y in make_rows(60, seed=2))])
    new = csv_data(path=str(tmp_path / "new.csv"), ngrams=1, test_fraction=0.5)
    make_trainer().test(model, new, ckpt_path=tmp_path / "model.ckpt", weights_only=True, verbose=False)
    inputs, labels = model.seen["test", model.current_epoch][0]
    for ids, features, label in zip(inputs["ids"].tolist(), inputs["ngram_features"], labels.tolist(), strict=True):
        assert decode(data, ids[:3]) == ["[UNK]", "[UNK]", ("bad", "good")[label]]
        assert features[2].argmax() == label
    with pytest.raises(UserError, match="the checkpoint was trained with n-gram features of other texts or settings"):
        make_trainer(max_epochs=2).fit(model, new, ckpt_path=tmp_path / "model.ckpt", weights_only=True)


def test_baselines_are_computed_once(csv_data, monkeypatch):
    data = csv_data()
    data.prepare_data()
    data.setup()
    results = data.baselines()
    assert results["n-gram model"] == {"test/acc": 1.0, "test/f1": 1.0}
    assert results["most frequent class"] == {"test/acc": 0.5, "test/f1": pytest.approx(1 / 3)}
    monkeypatch.setattr("project.data.ngram_text.ngram_model", None)
    assert csv_data().baselines() == results


def test_shards_hold_texts_without_features_only(csv_data, tmp_path):
    data = csv_data(ngrams=2)
    data.prepare_data()
    data.setup()
    with pytest.raises(UserError, match=r"^shards: they can't hold the ngram_features that NgramTextData gives"):
        data.write_shards(tmp_path / "refused", 10_000)
    plain = csv_data(ngrams=0)
    plain.prepare_data()
    plain.setup()
    with new_shards(tmp_path / "shards") as folder:
        plain.write_shards(folder, 10_000)
    streamed = StreamedTexts(str(tmp_path / "shards"), batch_size=8)
    inputs, labels = next(streamed.batches("test"))
    settings = {name: getattr(streamed, name) for name in ("vocab_size", "max_tokens", "num_classes")}
    assert TransformerClassifier(embed_dim=8, **settings)(inputs).shape == (len(labels), 2)
