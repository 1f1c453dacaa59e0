"""Which way is better, as far as it is known."""

import pytest
from torch import nn
from torchmetrics.classification import MulticlassAccuracy, MulticlassHingeLoss

from litlab.errors import UserError
from litlab.metrics import StageMetrics
from litlab.util.metrics import choose_mode, metric_direction

KNOWN = {
    "val/loss": "min",
    "train/acc": "max",
    "test/r2": "max",
    "val/mae_price": "min",
    "val/r2_price": "max",
    "test/mse_5": "min",
    "val/mine": "min",
    "val/loss_of_mine": "max",
}
UNKNOWN = ["val/coverage", "loss", "val/accident", "val/loss_weighted", "epoch"]


def test_direction():
    model = nn.Module()
    further = {"mine": MulticlassHingeLoss(3), "loss_of_mine": MulticlassAccuracy(3)}
    model.val_metrics = StageMetrics("val", {"acc": MulticlassAccuracy(3)}, further=further)
    assert {name: metric_direction(name, model) for name in [*KNOWN, *UNKNOWN]} == KNOWN | dict.fromkeys(UNKNOWN)


@pytest.mark.parametrize(
    ("mode", "monitor", "says"),
    [
        ("max", "val/loss", "val/loss is better when lower; set min, or leave mode out"),
        (None, "val/score", "it is not known whether val/score is better when lower or higher; set"),
    ],
)
def test_mode(mode, monitor, says):
    assert choose_mode("checkpoint.mode", None, "val/acc") == "max"
    assert choose_mode("checkpoint.mode", "min", "val/score") == "min"
    with pytest.raises(UserError, match=f"^checkpoint.mode: {says}"):
        choose_mode("checkpoint.mode", mode, monitor)
