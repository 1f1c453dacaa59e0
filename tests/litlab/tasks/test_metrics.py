"""Metrics that the user names: of torchmetrics and of one's own; test_ranks.py has them over ranks."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.utilities import dim_zero_cat

from litlab.tasks import Classifier
from tests.litlab.callbacks.tiny import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*logging interval")


class MyAccuracy(Metric):
    """As torchmetrics' page on metrics of one's own has it."""

    full_state_update = True
    higher_is_better = True

    def __init__(self) -> None:
        super().__init__()
        self.add_state("correct", default=torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("total", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds, target):
        self.correct += torch.sum(preds.argmax(dim=1) == target)
        self.total += target.numel()

    def compute(self):
        return self.correct.float() / self.total


class MyConfidence(Metric):
    """Keeps all it has seen, in lists of two types."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("seen", default=[], dist_reduce_fx="cat")
        self.add_state("targets", default=[], dist_reduce_fx="cat")

    def update(self, preds, target):
        self.seen.append(preds.amax(dim=1))
        self.targets.append(target)

    def compute(self):
        return (dim_zero_cat(self.seen) * torch.arange(1, 4)[dim_zero_cat(self.targets)]).mean()


def own_metrics() -> dict[str, Metric]:
    return {"mine": MyAccuracy(), "kept": MyConfidence(), "twice": MyAccuracy() + MulticlassAccuracy(3)}


def test_objects_from_python_count_every_sample_once_and_stay_out_of_checkpoints(tmp_path):
    """What they get are probabilities, for logits that could be taken for some as well."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(50, 3), torch.randint(3, (50,))
    model = Classifier(nn.Identity(), num_classes=3, metrics=own_metrics())
    trainer = make_trainer(tmp_path)
    for size in (50, 20):
        trainer.validate(model, DataLoader(TensorDataset(inputs[:size], labels[:size]), batch_size=8), verbose=False)
        probabilities, truth = model(inputs).softmax(1)[:size], labels[:size]
        right = (probabilities.argmax(1) == truth).float().mean()
        expected = {
            "mine": right,
            "kept": (probabilities.amax(dim=1) * (1 + truth)).mean(),
        }
        for name, value in expected.items():
            assert trainer.callback_metrics[f"val/{name}"].item() == pytest.approx(value.item()), name
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert saved["hyper_parameters"]["num_classes"] == 3
    assert "metrics" not in saved["hyper_parameters"]
