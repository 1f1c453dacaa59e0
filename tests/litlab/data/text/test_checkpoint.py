"""What a checkpoint carries of the texts, and what is predicted with it."""

import csv
import logging

import pytest
import torch

from litlab.data import TextData
from litlab.errors import UserError
from tests.litlab.data.text.conftest import TextRecorder, decode, make_rows, write_csv


def test_checkpoint_carries_what_raw_texts_need(csv_data, make_data, make_trainer, tmp_path):
    data, model = csv_data(max_tokens=8, vocab_size=60), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    state = torch.load(tmp_path / "model.ckpt", weights_only=True)["TextData"]
    assert state["class_names"] == ["bad", "good"]
    assert (state["max_tokens"], state["vocab_size"], state["generated"]) == (8, 60, False)
    again = TextData.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert dict(again.hparams) == dict(data.hparams)
    assert again.state_dict()["tokenizer"] == data.state_dict()["tokenizer"]
    trainer.test(model, data, verbose=False)

    # Elsewhere, with neither the training texts nor their settings at hand: the texts of the test split, in order.
    texts = [data.text("test", i) for i in range(10)]
    (tmp_path / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    other = make_data(dataset="csv", path=str(tmp_path / "gone.csv"), batch_size=3, cache_dir=str(tmp_path / "none"))
    other.predict_input = str(tmp_path / "in.txt")
    outputs = make_trainer().predict(model, other, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
    assert (other.num_classes, other.max_tokens, other.vocab_size) == (2, 8, 60)
    assert sorted(model.ids("predict")) == sorted(model.ids("test", 1))

    other.write_predictions(outputs, str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="") as stream:
        header, *lines = csv.reader(stream)
    assert header == ["row", "text", "prediction", "probability", "bad", "good"]
    assert [line[0] for line in lines] == [str(i + 1) for i in range(10)]
    for line, text in zip(lines, texts, strict=True):
        share = min(8, len(text.split())) / 100
        assert line[1] == (text if len(text) <= 80 else text[:77] + "...")
        assert line[2:] == ["good", f"{1 - share:.6f}", f"{share:.6f}", f"{1 - share:.6f}"]


def test_other_texts_are_read_with_the_checkpoints_tokenizer(csv_data, make_trainer, tmp_path):
    data, model = csv_data(), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    write_csv(tmp_path / "new.csv", [["text", "label"], *([f"new {t}", y] for t, y in make_rows(60, seed=2))])
    new = csv_data(path=str(tmp_path / "new.csv"), test_fraction=0.5)
    make_trainer().test(model, new, ckpt_path=tmp_path / "model.ckpt", weights_only=True, verbose=False)
    inputs, labels = model.seen["test", model.current_epoch][0]
    for ids, label in zip(inputs["ids"].tolist(), labels.tolist(), strict=True):
        assert decode(data, ids[:3]) == ["[UNK]", "[UNK]", ("bad", "good")[label]]


def test_settings_of_the_checkpoint_win_and_are_told(csv_data, make_trainer, tmp_path, caplog):
    data, model = csv_data(max_tokens=8), TextRecorder()
    trainer = make_trainer()
    trainer.fit(model, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    with caplog.at_level(logging.INFO, "lightning.pytorch.utilities.rank_zero"):
        make_trainer().test(
            model, csv_data(max_tokens=5), ckpt_path=tmp_path / "model.ckpt", weights_only=True, verbose=False
        )
    assert "data.max_tokens: 8, as the checkpoint was trained (here it is 5)" in caplog.messages
    assert max(map(len, model.ids("test", model.current_epoch))) == 8


def test_a_checkpoint_of_other_classes_is_refused(csv_data):
    data = csv_data()
    data.prepare_data()
    data.setup("test")
    state = {**data.state_dict(), "class_names": ["a", "b", "c", "d"]}
    expected = (
        "data: the checkpoint was trained on 4 classes (a, b, c, ...), the data has 2 classes (bad, good); "
        "use data of the same classes"
    )
    with pytest.raises(UserError) as error:
        data.load_state_dict(state)
    assert str(error.value) == expected
    data = csv_data()
    data.load_state_dict(state)
    with pytest.raises(UserError) as error:
        data.setup("test")
    assert str(error.value) == expected


def test_predicting_needs_input_and_a_checkpoint(make_data, make_trainer, tmp_path):
    data = make_data(dataset="generated")
    with pytest.raises(UserError, match=r"nothing to predict; name a \.csv or \.txt file with --input$"):
        make_trainer().predict(TextRecorder(), data)
    data.predict_input = str(tmp_path)
    with pytest.raises(UserError, match=r"^predict: no checkpoint"):
        make_trainer().predict(TextRecorder(), data)
