"""Which way is better, as far as it is known."""

import pytest
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassHingeLoss

from litlab.errors import UserError
from litlab.metrics import StageMetrics
from litlab.util.metrics import choose_mode, metric_direction


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        own = {"mine": MulticlassHingeLoss(3), "loss_of_mine": MulticlassAccuracy(3)}
        self.val_metrics = StageMetrics("val", {"acc": MulticlassAccuracy(3)}, further=own)
        self.plain = MetricCollection({"top": MulticlassAccuracy(3)}, prefix="own/")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("val/loss", "min"), ("train/acc", "max"), ("val/mse", "min"), ("test/r2", "max"), ("val/mae_price", "min"),
        ("val/r2_price", "max"), ("test/mse_5", "min"), ("test/acc", "max"), ("val/mine", "min"),
        ("val/loss_of_mine", "max"), ("own/top", "max"), ("val/coverage", None), ("val/score", None), ("loss", None),
        ("val/accident", None), ("val/loss_weighted", None), ("epoch", None),
    ],
)  # fmt: skip
def test_direction(name, known):
    assert metric_direction(name, Model()) == known


@pytest.mark.parametrize(
    ("mode", "monitor", "result"),
    [
        (None, "val/loss", "min"),
        (None, "val/acc", "max"),
        ("min", "val/score", "min"),
        ("max", "val/loss", "checkpoint.mode: val/loss is better when lower; set min, or leave mode out"),
        ("min", "val/acc", "checkpoint.mode: val/acc is better when higher; set max, or leave mode out"),
        (None, "val/score", "checkpoint.mode: it is not known whether val/score is better when lower or higher; set"),
    ],
)
def test_mode(mode, monitor, result):
    if result in ("min", "max"):
        assert choose_mode("checkpoint.mode", mode, monitor) == result
        return
    with pytest.raises(UserError, match=f"^{result}"):
        choose_mode("checkpoint.mode", mode, monitor)
