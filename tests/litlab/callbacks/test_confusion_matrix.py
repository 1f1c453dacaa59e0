import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics.functional import confusion_matrix

from litlab.callbacks import ConfusionMatrix
from litlab.callbacks.confusion_matrix import draw_confusion_matrix
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


def run(tmp_path, logger, data=None, model=None):
    callback, model = ConfusionMatrix(), model or Tiny()
    trainer = make_trainer(tmp_path, logger=logger, callbacks=[callback])
    trainer.test(model, data or TinyData(samples=30), verbose=False)
    return callback, model


def test_exact_counts(tmp_path):
    data = TinyData(samples=30)
    callback, model = run(tmp_path, False, data)
    images, labels = data.dataset.tensors
    with torch.no_grad():
        predicted = model.eval().network(images).argmax(1)
    assert torch.equal(callback.counts, confusion_matrix(predicted, labels, task="multiclass", num_classes=4))


def test_inputs_may_be_anything(tmp_path):
    class Texts(TinyData):
        def test_dataloader(self):
            return DataLoader([({"ids": torch.tensor([n % 3])}, n % 2) for n in range(12)], batch_size=5)

    class Reader(Tiny):
        def test_step(self, batch, batch_idx):
            return {"logits": nn.functional.one_hot(batch[0]["ids"][:, 0], 3).float()}

    callback, _ = run(tmp_path, False, Texts(), Reader())
    assert callback.counts.tolist() == [[2, 2, 2], [2, 2, 2], [0, 0, 0]]


def test_counts_start_anew_with_each_test(tmp_path):
    callback = ConfusionMatrix()
    for _ in range(2):
        make_trainer(tmp_path, callbacks=[callback]).test(Tiny(), TinyData(samples=30), verbose=False)
    assert callback.counts.sum() == 30


@pytest.mark.parametrize("with_csv", [False, True])
def test_other_loggers(tmp_path, with_csv):
    run(tmp_path, CSVLogger(tmp_path) if with_csv else False)
    assert len(list(tmp_path.rglob("confusion_matrix.png"))) == with_csv


def test_no_logits_is_a_user_error(tmp_path):
    class NoLogits(Tiny):
        def test_step(self, batch, batch_idx):
            return super().test_step(batch, batch_idx)["loss"]

    with pytest.raises(
        UserError, match=r"NoLogits\.test_step must return a dict with 'logits' .* ConfusionMatrix from"
    ):
        run(tmp_path, False, model=NoLogits())


def test_names_and_counts_are_where_they_belong():
    counts = torch.tensor([[5, 3], [0, 2]])
    axes = draw_confusion_matrix(counts, ["ant", "bee"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ant", "bee"]
    assert {(text.get_position(), text.get_text()) for text in axes.texts} == {
        ((0, 0), "5"),
        ((1, 0), "3"),  # row of the true class, column of the prediction
        ((1, 1), "2"),
    }
    assert axes.get_title() == "7 of 10 correct (70.0%)"


def test_numbers_up_to_20_classes():
    texts = {
        classes: len(
            draw_confusion_matrix(torch.eye(classes, dtype=torch.long), [str(i) for i in range(classes)]).axes[0].texts
        )
        for classes in (20, 21)
    }
    assert texts == {20: 20, 21: 0}
