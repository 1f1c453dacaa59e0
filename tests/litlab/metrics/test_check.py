"""What is said of metrics that can't be used, and what is monitored the wrong way round."""

import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric, MeanSquaredError, Metric, MinMaxMetric
from torchmetrics.classification import (
    BinaryAUROC,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassCalibrationError,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassHingeLoss,
    MulticlassROC,
)

from litlab.errors import UserError
from litlab.metrics.check import check_metrics


class MeanOfBatches(Metric):
    """What it keeps is not all in its state, so that a checkpoint has not all of it."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.tensor(0.0)

    def update(self, probabilities, labels):
        self.mean = probabilities.max() + 0 * labels.sum()

    def compute(self):
        return self.mean


@pytest.mark.parametrize("classes", [2, 3, 17, 1000])
def test_metrics_of_torchmetrics_that_give_one_number_pass(classes):
    kinds = (MulticlassAUROC, MulticlassCalibrationError, MulticlassHingeLoss, MulticlassF1Score, MulticlassAccuracy)
    metrics = {f"number{place}": kind(classes) for place, kind in enumerate(kinds)}
    check_metrics(metrics, classes)
    assert all(metric.update_count == 0 for metric in metrics.values())  # it is copies that were tried


@pytest.mark.parametrize(
    ("name", "metric", "says"),
    [
        ("acc", MulticlassAUROC(5), "model.metrics.acc: this name is taken; choose another one"),
        ("loss_step", MulticlassAUROC(5), "model.metrics.loss_step: this name is taken"),
        ("training", MulticlassAUROC(5), "model.metrics.training: this name is taken"),  # of a module
        ("a/b", MulticlassAUROC(5), "model.metrics.a/b: it is not a valid name; use letters, digits and"),
        ("m", nn.Linear(1, 1), "model.metrics.m: Linear is no torchmetrics.Metric; name a subclass of it"),
        ("m", MulticlassAUROC(7), "model.metrics.m.num_classes: 7 differs from the 5 classes of the data; set 5"),
        ("m", MinMaxMetric(MulticlassAUROC(5)), "model.metrics.m: MinMaxMetric wraps another metric; name that one"),
        ("m", MulticlassAUROC(5, average=None), "model.metrics.m: MulticlassAUROC returns 5 numbers instead of one"),
        ("m", MulticlassROC(5), "model.metrics.m: MulticlassROC returns a tuple instead of one; set average"),
        ("m", MulticlassConfusionMatrix(5), "model.metrics.m: MulticlassConfusionMatrix returns 25 numbers"),
        ("m", BinaryAUROC(), r"model.metrics.m: BinaryAUROC can't take the probabilities of 5 classes \(IndexError: "),
        ("m", MeanSquaredError(), "model.metrics.m: MeanSquaredError can't take the probabilities of 5 classes"),
        ("m", MeanMetric(), "model.metrics.m: MeanMetric can't take the probabilities of 5 classes"),
        ("m", MeanOfBatches(), "model.metrics.m: MeanOfBatches can't go on from a checkpoint that is written"),
    ],
)
def test_what_would_fail_after_an_epoch_is_refused_before_it(name, metric, says):
    with pytest.raises(UserError, match=f"^{says}"):
        check_metrics({name: metric}, 5)


def test_a_bug_in_a_metric_of_the_teams_own_is_no_refusal(monkeypatch):
    monkeypatch.setattr("litlab.metrics.check.is_own", lambda module: module == __name__)

    class Buggy(MeanOfBatches):
        def compute(self):
            return self.maen

    with pytest.raises(AttributeError, match="maen"):
        check_metrics({"m": Buggy()}, 5)
