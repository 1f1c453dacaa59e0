"""What is said at the end of a test."""

import csv
import json

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torchmetrics.functional import confusion_matrix, f1_score

from litlab.callbacks import Baselines, ConfusionMatrix
from litlab.callbacks.evaluation import draw_confusion_matrix, pick_evenly
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer


class Compared(TinyData):
    def baselines(self):
        return {"majority": {"test/loss": 1e6, "test/acc": 0.25}, "n-gram [1, 2]": {"test/f1": 0.5}}


def run(folder, callback, model=None, data=None, **options):
    """Test twice, as what is counted starts anew with each test."""
    trainer = make_trainer(folder, **{"logger": CSVLogger(folder, "", ""), "callbacks": [callback], **options})
    for _ in range(2):
        trainer.test(model or Tiny(), data or TinyData(samples=30), verbose=False)
    return trainer


def test_every_sample_counts_and_each_class_is_in_a_table(tmp_path, capsys):
    callback, model, data = ConfusionMatrix(), Tiny(), TinyData(samples=30)
    data.class_names = ["ant [1]", "bee", "cow", "dog"]
    run(tmp_path, callback, model, data)
    images, labels = data.dataset.tensors
    with torch.no_grad():
        predicted = model.eval().network(images).argmax(1)
    assert torch.equal(callback.counts, confusion_matrix(predicted, labels, task="multiclass", num_classes=4))
    with (tmp_path / "classes.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    f1 = f1_score(predicted, labels, task="multiclass", num_classes=4, average=None).tolist()
    assert [row["class"] for row in rows] == data.class_names
    assert [float(row["F1"]) for row in rows] == pytest.approx(f1, rel=1e-5)
    assert sum(int(row["test samples"]) for row in rows) == 30
    assert (tmp_path / "confusion_matrix.png").is_file()
    assert "ant [1]" in capsys.readouterr().out


def test_the_picture_has_shares_and_no_numbers_for_many_classes():
    axes = draw_confusion_matrix(torch.tensor([[6, 2], [0, 2]]), ["ant", "bee"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ant", "bee"]
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts == {(0, 0): "0.75", (1, 0): "0.25", (0, 1): "0.0", (1, 1): "1.0"}  # column, row of the true class
    assert len(draw_confusion_matrix(torch.eye(21).long(), list(map(str, range(21)))).axes[0].texts) == 0


def test_the_model_beside_its_baselines(tmp_path, capsys):
    trainer = run(tmp_path, Baselines(), data=Compared())
    loss = float(trainer.callback_metrics["test/loss"])
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert [line.split() for line in lines] == [
        ["model", "test/loss", "test/acc", "test/f1"], ["Tiny", f"{loss:.4g}"], ["majority", "1e+06", "0.25"],
        ["n-gram", "[1,", "2]", "0.5"],
    ]  # fmt: skip
    saved = json.loads((tmp_path / "baselines.json").read_text())
    assert saved == {"Tiny": {"test/loss": loss}, **Compared().baselines()}


@pytest.mark.parametrize(
    ("data", "options"),
    [(Compared(), {"fast_dev_run": True}), (Compared(), {"limit_test_batches": 1}), (TinyData(), {})],
)
def test_no_baselines_of_a_part_of_the_test_nor_of_data_without(tmp_path, capsys, data, options):
    run(tmp_path, Baselines(), data=data, **options)
    assert capsys.readouterr().out == ""


def keep(count, sizes, is_known=True):
    """Positions in the whole test of the samples kept."""
    kept, first = [], 0
    for batch, size in enumerate(sizes):
        batches = len(sizes) if is_known else float("inf")
        kept += (first + pick_evenly(count, len(kept), batch, batches, size)).tolist()
        first += size
    return kept


@pytest.mark.parametrize("count", [1, 4, 40])
@pytest.mark.parametrize("sizes", [[40], [10] * 4, [1] * 40, [13, 14, 13]])
def test_samples_are_spread_evenly(count, sizes):
    kept = keep(count, sizes)
    assert len(set(kept)) == len(kept) == count
    assert kept == sorted(kept)
    if count == 4 and len(sizes) == 40:
        assert torch.tensor(kept).diff().tolist() == [10] * 3


def test_no_more_samples_than_there_are_and_the_first_where_the_end_is_unknown():
    assert keep(50, [7, 3]) == list(range(10))
    assert keep(3, [2, 2, 2], is_known=False) == [0, 1, 2]
