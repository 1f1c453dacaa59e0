"""What a checkpoint carries of the texts, and what is predicted with it."""

import pandas as pd
import pytest
import torch

from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.text.conftest import TextRecorder, decode, make_rows, strip, write_csv


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
    assert other.state_dict() == data.state_dict()
    assert sorted(model.ids("predict")) == sorted(model.ids("test", 1))

    other.write_predictions(outputs, str(tmp_path / "out.csv"))
    rows = pd.read_csv(tmp_path / "out.csv")
    assert rows["row"].tolist() == list(range(1, 11))
    assert rows["text"].tolist() == [text[:80] for text in texts]
    assert rows["bad"].tolist() == pytest.approx([min(8, len(text.split())) / 100 for text in texts])
    assert set(rows["prediction"]) == {"good"}
    (tmp_path / "in.txt").write_text(" \n")
    assert refusal(other.open_input, str(tmp_path / "in.txt")).endswith("in.txt has no texts; write one a line")


def test_settings_and_tokens_of_the_checkpoint_win(trained, make_data, make_trainer, tmp_path):
    data, model, file = trained
    write_csv(tmp_path / "new.csv", [[f"new {text}", label] for text, label in make_rows(60, seed=2)])
    new = make_data(path=str(tmp_path / "new.csv"), test_fraction=0.5, max_tokens=5)
    make_trainer().test(model, new, ckpt_path=file, weights_only=True, verbose=False)
    assert max(map(len, model.ids("test", model.current_epoch))) == new.max_tokens == 8
    inputs, labels = model.seen["test", model.current_epoch][0]
    for ids, label in zip(strip(inputs), labels.tolist(), strict=True):
        assert decode(data, ids[:3]) == ["[UNK]", "[UNK]", ("bad", "good")[label]]


@pytest.mark.parametrize(("long_texts", "most"), [("truncate", 4), ("crop", 8)])
def test_what_a_deployed_model_is_told(make_data, long_texts, most):
    serving = prepared(make_data(max_tokens=4, long_texts=long_texts)).serving()
    facts = {"class_names": ["bad", "good"], "max_tokens": 4, "both_ends": most == 8, "padding": 0}
    assert (serving.facts(), serving.most) == (facts, {"time": most})
    assert serving.encode(torch.ones(2, 3))["ids"].shape[1] == 3 + (most == 8) * 4
