"""What a checkpoint carries of the texts, and what is predicted with it."""

import pandas as pd
import pytest
import torch

from litlab.data import TextData
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import TextRecorder, decode, make_rows, write_csv


@pytest.fixture
def trained(csv_data, make_trainer, tmp_path):
    """The data of a checkpoint, the model and the file."""
    data, model, trainer = csv_data(max_tokens=8, vocab_size=60), TextRecorder(), make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    trainer.test(model, data, verbose=False)
    return data, model, tmp_path / "model.ckpt"


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_checkpoint_carries_what_raw_texts_need(trained, make_data, make_trainer, tmp_path, suffix):
    data, model, file = trained
    state = torch.load(file, weights_only=True)["TextData"]
    assert (state["class_names"], state["max_tokens"], state["vocab_size"]) == (["bad", "good"], 8, 60)
    again = TextData.load_from_checkpoint(file, weights_only=True)
    assert dict(again.hparams) == dict(data.hparams)
    assert again.state_dict() == data.state_dict()

    # Elsewhere, without the training texts at hand: the texts of the test split, in order.
    texts = [data.text("test", number) for number in range(10)]
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    other = make_data(path=str(tmp_path / "gone.csv"), batch_size=3, cache_dir=str(tmp_path / "none"))
    other.predict_input = str(tmp_path / "in.txt")
    outputs = make_trainer().predict(model, other, ckpt_path=file, weights_only=True)
    assert (other.num_classes, other.max_tokens, other.vocab_size) == (2, 8, 60)
    assert sorted(model.ids("predict")) == sorted(model.ids("test", 1))

    other.write_predictions(outputs, str(tmp_path / f"out{suffix}"))
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".jsonl": lambda path: pd.read_json(path, lines=True)}
    rows = read[suffix](tmp_path / f"out{suffix}")
    assert rows.columns.tolist() == ["row", "text", "prediction", "probability", "bad", "good"]
    assert rows["row"].tolist() == list(range(1, 11))
    assert rows["text"].tolist() == [text[:80] for text in texts]
    assert rows["bad"].tolist() == pytest.approx([min(8, len(text.split())) / 100 for text in texts])
    assert set(rows["prediction"]) == {"good"}


def test_other_texts_are_read_with_the_checkpoints_tokenizer(trained, csv_data, make_trainer, tmp_path):
    data, model, file = trained
    write_csv(tmp_path / "new.csv", [["text", "label"], *([f"new {t}", y] for t, y in make_rows(60, seed=2))])
    new = csv_data(path=str(tmp_path / "new.csv"), test_fraction=0.5)
    make_trainer().test(model, new, ckpt_path=file, weights_only=True, verbose=False)
    inputs, labels = model.seen["test", model.current_epoch][-1]
    for ids, label in zip(inputs["ids"].tolist(), labels.tolist(), strict=True):
        assert decode(data, ids[:3]) == ["[UNK]", "[UNK]", ("bad", "good")[label]]


def test_settings_of_the_checkpoint_win(trained, csv_data, make_trainer):
    _, model, file = trained
    other = csv_data(max_tokens=5)
    make_trainer().test(model, other, ckpt_path=file, weights_only=True, verbose=False)
    assert max(map(len, model.ids("test", model.current_epoch))) == other.max_tokens == 8


def test_a_checkpoint_of_other_classes_is_refused(csv_data):
    data = prepared(csv_data(), "test")
    state = {**data.state_dict(), "class_names": ["a", "b", "c"]}
    message = "data: the checkpoint was trained with class_names a, b, c, here it is bad, good; "
    assert refusal(data.load_state_dict, state).startswith(message)
    data = csv_data()
    data.load_state_dict(state)
    assert refusal(data.setup, "test").startswith(message)


def test_an_empty_file_is_refused(trained, tmp_path):
    (tmp_path / "in.txt").write_text(" \n")
    assert refusal(trained[0].open_input, str(tmp_path / "in.txt")).endswith("in.txt has no texts; write one a line")


def test_predicting_needs_input_and_a_checkpoint(make_data, make_trainer, tmp_path):
    data = make_data(dataset="generated")
    for _ in range(2):
        refused = refusal(make_trainer().predict, TextRecorder(), data)
        assert refused == "predict: it needs a checkpoint and an input; set --run and --input"
        data.predict_input = str(tmp_path)
