"""Metrics that the user names, and the means that callbacks see; test_ranks.py has them over
ranks.
"""

import pytest
import torch
from lightning.pytorch import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC
from torchmetrics.functional.classification import multiclass_auroc

from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import fit, make_trainer
from tests.litlab.tasks import test_classifier, test_forecaster, test_regressor
from tests.litlab.tasks.tiny_series import TinySeries


def own_metrics() -> dict[str, Metric]:
    accuracy = MulticlassAccuracy(3, average="micro")
    return {"sums": accuracy, "kept": MulticlassAUROC(3), "twice": accuracy + MulticlassAccuracy(3)}


def test_objects_from_python_count_every_sample_once_and_stay_out_of_checkpoints(tmp_path):
    """What they get are probabilities, for logits that could be taken for some as well."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(50, 3), torch.randint(3, (50,))
    model = Classifier(nn.Identity(), num_classes=3, metrics=own_metrics())
    trainer = make_trainer(tmp_path)
    for size in (50, 20):
        loader = DataLoader(TensorDataset(inputs[:size], labels[:size]), batch_size=8)
        trainer.validate(model, loader, verbose=False)
        probabilities, truth = model(inputs).softmax(1)[:size], labels[:size]
        right = (probabilities.argmax(1) == truth).float().mean()
        kept = multiclass_auroc(probabilities, truth, 3)
        for name, value in {"sums": right, "kept": kept}.items():
            torch.testing.assert_close(trainer.callback_metrics[f"val/{name}"], value)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert saved["hyper_parameters"]["num_classes"] == 3
    assert "metrics" not in saved["hyper_parameters"]


def as_numbers(metrics: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: value.item() for name, value in metrics.items()}


class Seen(Callback):
    """The metrics that a callback finds as an epoch ends."""

    def __init__(self) -> None:
        self.metrics = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.metrics.append(as_numbers(trainer.callback_metrics))

    on_validation_epoch_end = on_test_epoch_end = on_train_epoch_end


TASKS = {
    "classifier": (test_classifier.classifier, test_classifier.Images),
    "regressor": (test_regressor.build, test_regressor.Rows),
    "forecaster": (test_forecaster.build, TinySeries),
}


@pytest.mark.parametrize(
    "settings", [{}, {"max_steps": 4}, {"accumulate_grad_batches": 2}], ids=str
)
@pytest.mark.parametrize("task", TASKS)
def test_callbacks_see_the_means_of_an_epoch_as_it_ends(tmp_path, monkeypatch, task, settings):
    """As they see those of ``self.log(..., on_epoch=True)``; also of an epoch that is cut short."""
    build, data = TASKS[task]
    model, seen, logged = build(), Seen(), []
    monkeypatch.setattr(model, "log_dict", lambda values, **_: logged.append(as_numbers(values)))
    trainer = fit(
        tmp_path, model, seen, data=data(), max_epochs=2, num_sanity_val_steps=0, **settings
    )
    trainer.test(model, data(), verbose=False)
    assert "train/loss" in logged[-2]
    assert "test/loss" in logged[-1]
    for found, values in zip(seen.metrics, logged, strict=True):
        assert values.items() <= found.items()
