"""StageMetrics, against all samples at once."""

import pytest
import torch
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy

from litlab.metrics import StageMetrics
from litlab.metrics.state import load_metric_states, metric_states

CPU = torch.device("cpu")
ACCURACY = {"acc": MulticlassAccuracy(3, average="micro")}


def batches(sizes):
    torch.manual_seed(0)
    return [(torch.randn(size, 3), torch.randint(0, 3, (size,))) for size in sizes]


@pytest.mark.parametrize("flush_every", [1, 2, 50])
def test_every_sample_counts_once_whatever_the_chunks(flush_every):
    metrics, steps = StageMetrics("val", ACCURACY, flush_every=flush_every), batches((4, 4, 1, 3, 4))
    for logits, labels in steps:
        metrics.add(F.cross_entropy(logits, labels), logits, labels)
    values = metrics.compute()
    logits, labels = (torch.cat(part) for part in zip(*steps, strict=True))
    assert values["val/acc"] == (logits.argmax(1) == labels).float().mean()
    assert values["val/loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    metrics.add(torch.tensor(float("nan")), *steps[0])
    assert metrics.compute()["val/loss"].isnan()


def test_reset_forgets_what_was_not_flushed_too():
    metrics, right = StageMetrics("val", ACCURACY), torch.eye(3)
    metrics.add(torch.tensor(9.0), right.roll(1, 0), torch.arange(3))
    metrics.reset()
    metrics.add(torch.tensor(1.0), right, torch.arange(3))
    assert metrics.compute() == {"val/loss": 1.0, "val/acc": 1.0}


def test_it_goes_on_from_its_sums():
    whole, first, second, idle = (StageMetrics("train", ACCURACY, flush_every=4) for _ in range(4))
    for number, (logits, labels) in enumerate(batches([4] * 6)):
        if number == 5:
            load_metric_states(second, metric_states(first), CPU)
        for metrics in (whole, first if number < 5 else second):
            metrics.add(F.cross_entropy(logits, labels), logits, labels)
    load_metric_states(idle, metric_states(whole), CPU)  # no further step comes; without a warning
    assert idle.compute() == second.compute() == whole.compute()


def test_the_loss_alone_counts_every_sample_too():
    metrics = StageMetrics("train", flush_every=2)
    for loss, samples in ((1.0, 5), (2.0, 5), (6.0, 2)):
        metrics.add(torch.tensor(loss), None, torch.zeros(samples))
    assert metrics.compute() == {"train/loss": 2.25}


def test_a_users_metric_may_take_the_place_of_the_tasks():
    metrics = StageMetrics("val", ACCURACY, {"acc": MulticlassAccuracy(3, top_k=3)}, softmax=True)
    metrics.add(torch.tensor(0.0), *batches([9])[0])
    assert metrics.compute()["val/acc"] == 1
