"""StageMetrics and MeanLoss, against all samples at once."""

import pytest
import torch
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassROC

from litlab.errors import UserError
from litlab.metrics import MeanLoss, StageMetrics
from litlab.metrics.state import load_metric_states, metric_states

CPU = torch.device("cpu")
ACCURACY = MetricCollection({"acc": MulticlassAccuracy(3, average="micro")})


def same(sums):
    return sums


def batches(sizes):
    torch.manual_seed(0)
    return [(torch.randn(size, 3), torch.randint(0, 3, (size,))) for size in sizes]


@pytest.mark.parametrize("flush_every", [1, 2, 50])
def test_every_sample_counts_once_whatever_the_chunks(flush_every):
    metrics, steps = StageMetrics(ACCURACY, "val", flush_every=flush_every), batches((4, 4, 1, 3, 4))
    for logits, labels in steps:
        metrics.add(F.cross_entropy(logits, labels), logits, labels)
    values = metrics.compute(same)
    logits, labels = (torch.cat(part) for part in zip(*steps, strict=True))
    assert values["val/acc"] == (logits.argmax(1) == labels).float().mean()
    assert values["val/loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    metrics.add(torch.tensor(float("nan")), *steps[0])
    assert metrics.compute(same)["val/loss"].isnan()


def test_reset_forgets_what_was_not_flushed_too():
    metrics, right = StageMetrics(ACCURACY, "val"), torch.eye(3)
    metrics.add(torch.tensor(9.0), right.roll(1, 0), torch.arange(3))
    metrics.reset(CPU)
    metrics.add(torch.tensor(1.0), right, torch.arange(3))
    assert metrics.compute(same) == {"val/loss": 1.0, "val/acc": 1.0}


def test_it_goes_on_from_its_sums():
    whole, first, second, idle = (StageMetrics(ACCURACY, "train", flush_every=4) for _ in range(4))
    for number, (logits, labels) in enumerate(batches([4] * 6)):
        if number == 5:
            load_metric_states(second, metric_states(first), CPU)
        for metrics in (whole, first if number < 5 else second):
            metrics.add(F.cross_entropy(logits, labels), logits, labels)
    load_metric_states(idle, metric_states(whole), CPU)  # no further step comes; without a warning
    assert idle.compute(same) == second.compute(same) == whole.compute(same)


def test_mean_loss_goes_on_bit_by_bit():
    """Also what is remembered and not added up yet: the next `flush` tells the mean of the same steps."""
    losses = torch.rand(40, generator=torch.Generator().manual_seed(0))
    for saved_after in range(0, 40, 3):
        first, second = MeanLoss(flush_every=7), MeanLoss(flush_every=7)
        for loss in losses[:saved_after]:
            first.add(loss, 3)
        second.load_state(first.state(), CPU)
        for loss in losses[saved_after:]:
            first.add(loss, 3)
            second.add(loss, 3)
        assert first.flush() == second.flush() == losses[35:].double().mean()
        assert torch.equal(first.compute(same), second.compute(same))


@pytest.mark.parametrize("name", ["acc", "loss_step"])
def test_a_name_that_is_taken(name):
    with pytest.raises(UserError, match=f"model.metrics.{name}: the model logs this name itself; choose another one"):
        StageMetrics(ACCURACY, "val", {name: MulticlassAccuracy(3)})


@pytest.mark.parametrize("metric", [MulticlassAccuracy(3, average=None), MulticlassROC(3)])
def test_several_numbers_are_refused_at_the_first_step(metric):
    metrics = StageMetrics(ACCURACY, "val", {"mine": metric}, softmax=True)
    with pytest.raises(UserError, match=r"model.metrics.mine: it returns several numbers; set average, or use another"):
        metrics.add(torch.tensor(0.0), *batches([4])[0])
