"""What is said at the end of a test, and what loggers and the run folder get of it."""

import json

import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from pandas import read_csv
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torchmetrics.functional import calibration_error, confusion_matrix, f1_score, precision

from litlab.callbacks import Baselines, ConfusionMatrix, evaluation
from litlab.util.text import format_number
from tests.litlab.callbacks.tiny import Tiny, TinyData, evaluate
from tests.recorder import Recorder, RunRecorder


class Compared(TinyData):
    def baselines(self):
        return {"majority": {"test/loss": 1e6, "test/acc": 0.25}, "n-gram [1, 2]": {"test/f1": 0.5}}


def test_every_sample_counts_and_each_class_is_in_a_table(tmp_path, figures):
    callback, model, data = ConfusionMatrix(), Tiny(), TinyData(samples=30)
    data.class_names = ["ant [1]", "bee", "cow", "dog"]
    evaluate(tmp_path, model, data, callback)
    images, labels = data.dataset.tensors
    with torch.no_grad():
        probabilities = model.eval().network(images).softmax(1)
    predicted, task = probabilities.argmax(1), {"task": "multiclass", "num_classes": 4}
    assert torch.equal(callback.counts, confusion_matrix(predicted, labels, **task))
    table = read_csv(tmp_path / "classes.csv")
    assert table["class"].tolist() == data.class_names
    for name, metric in (("precision", precision), ("F1", f1_score)):
        expected = metric(predicted, labels, average=None, **task)
        measured = table[name].fillna(0.0)  # none was predicted
        assert measured.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert table["test samples"].sum() == 30
    error = calibration_error(probabilities, labels, n_bins=15, **task)
    title = f"calibration error {error:.3f}, mean confidence {probabilities.amax(1).mean():.1%}"
    assert title in figures["calibration"].axes[0].get_title()


def test_the_model_beside_its_baselines(tmp_path, capsys):
    trainer = evaluate(tmp_path, Tiny(), Compared(), Baselines())
    loss = float(trainer.callback_metrics["test/loss"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    assert lines == [["Tiny", format_number(loss)], ["majority", "1000000", "0.2500"],
                     ["n-gram", "[1,", "2]", "0.5000"]]  # fmt: skip
    saved = json.loads((tmp_path / "baselines.json").read_text())
    assert saved == {"Tiny": {"test/loss": loss}, **Compared().baselines()}
    evaluate(tmp_path / "part", Tiny(), Compared(), Baselines(), limit_test_batches=1)
    assert capsys.readouterr().out == ""  # of a part of the test


RESULTS = yaml.safe_load("""  # of a model and of a guess, and whether it is told
- [{test/acc: 0.88, test/f1: 0.47}, {test/acc: 0.88, test/f1: 0.47}, true]
- [{test/acc: 0.87, test/f1: 0.61}, {test/acc: 0.88, test/f1: 0.47}, false]
- [{test/mse: 2.0, test/r2: -0.1}, {test/mse: 1.9, test/r2: -0.004}, true]
- [{test/mse: 1.8}, {test/mse: 1.9}, false]
- [{test/mine: 1.0}, {test/mine: 2.0}, false]  # which is better is not known
""")


@pytest.mark.parametrize(("own", "guess", "is_said"), RESULTS)
def test_a_model_that_is_no_better_than_a_guess_is_said_to_be_so(caplog, own, guess, is_said):
    caplog.set_level("INFO")
    evaluation.warn_of_guess(own, "most frequent class", guess, torch.nn.Linear(1, 1))
    assert ("no better than the baseline 'most frequent class'" in caplog.text) == is_said


def test_every_logger_gets_what_it_takes(tmp_path):
    recorder, run = Recorder(), RunRecorder()
    loggers = [TensorBoardLogger(tmp_path, "", ""), CSVLogger(tmp_path / "csv"), recorder, run]
    evaluate(tmp_path, Tiny(), Compared(), ConfusionMatrix(), Baselines(), logger=loggers)
    tags, name = EventAccumulator(str(tmp_path)).Reload().Tags(), "test/confusion_matrix"
    assert tags["images"] == [name, "test/calibration"]
    shown, stored = recorder.log_image.call_args_list[0], run.experiment.log_image.call_args_list[0]
    assert (shown.kwargs["key"], stored.args[0], stored.args[2]) == (name, "r1", f"{name}.png")
    file = Image.open(tmp_path / "confusion_matrix.png")
    assert file.getextrema()[3] == (0, 255)  # where nothing is drawn the page is seen
    white = Image.new("RGBA", file.size, "white")
    pixels = np.asarray(Image.alpha_composite(white, file))[:, :, :3]
    for picture in (*shown.kwargs["images"], stored.args[1]):
        np.testing.assert_array_equal(picture, pixels)

    tables = {call.kwargs["key"]: call.kwargs for call in recorder.log_table.call_args_list}
    texts = {call.args[2]: call.args[1] for call in run.experiment.log_text.call_args_list}
    assert tables.keys() == {"test/classes", "test/baselines"}
    assert {tag.removesuffix("/text_summary") for tag in tags["tensors"]} == tables.keys()
    for name, table in tables.items():
        assert {len(row) for row in table["data"]} == {len(table["columns"])}
        assert all(column in texts[f"{name}.md"] for column in table["columns"])
