"""The cache of token ids: used, made again, or another one."""

import logging

import pytest

from tests.litlab.data.text.conftest import make_rows, write_csv


def test_a_second_start_reads_no_csv_and_tokenises_nothing(csv_data, make_trainer, monkeypatch):
    def expected(data):
        data.prepare_data()
        data.setup("fit")
        return [(x["ids"].tolist(), y.tolist()) for x, y in data.train_dataloader()]

    first = expected(csv_data())

    def refuse(*_, **__):
        raise AssertionError("read again")

    for name in ("sources.read_rows", "stored.train_tokenizer", "stored.encode"):
        monkeypatch.setattr(f"litlab.data.text.{name}", refuse)
    data = csv_data()
    assert data.class_names == ["bad", "good"]
    assert expected(data) == first


def test_the_csv_is_read_once(csv_data, monkeypatch):
    from litlab.data.text import sources

    calls = []
    read_rows = sources.read_rows
    monkeypatch.setattr(sources, "read_rows", lambda *a, **k: calls.append(a) or read_rows(*a, **k))
    data = csv_data()
    assert data.num_classes == 2
    data.prepare_data()
    data.setup()
    assert data.num_classes == 2
    assert len(calls) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer": "bpe", "vocab_size": 300},
        {"vocab_size": 10},
        {"val_fraction": 0.2},
        {"test_fraction": 0.2},
        {"text_columns": ["text", "text2"]},
        {"label_column": "text2"},
    ],
)
def test_other_settings_make_another_cache(csv_data, reviews, change):
    csv_data().prepare_data()
    write_csv(reviews, [["text", "label", "text2"], *([*row, row[1]] for row in make_rows(100))])
    csv_data().prepare_data()  # the file has changed
    csv_data(**change).prepare_data()
    folders = [path.name for path in (reviews.parent / "cache").iterdir() if path.is_dir()]
    assert len(folders) == 3
    assert all(name.startswith("reviews-") for name in folders)


def test_damaged_caches_are_made_again(csv_data, caplog):
    data = csv_data()
    data.prepare_data()
    before = {path: path.read_bytes() for folder in data.cache_dir.iterdir() for path in folder.glob("*.npy")}
    for path in before:
        if path.name == "train_ids.npy":
            path.write_bytes(before[path][:-1] + b"x")
    with caplog.at_level(logging.INFO, "lightning.pytorch.utilities.rank_zero"):
        csv_data().prepare_data()
    assert sum("the cache is damaged" in message for message in caplog.messages) == 1
    assert {path: path.read_bytes() for path in before} == before
