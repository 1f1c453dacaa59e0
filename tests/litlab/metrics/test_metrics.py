"""Metrics: sums against scikit-learn, stages against all samples at once, the order statistic of
intervals.
"""

import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy

from litlab.metrics import Conformal, RegressionErrors, StageMetrics

ACCURACY = {"acc": MulticlassAccuracy(3, average="micro")}


def batches(sizes):
    torch.manual_seed(0)
    return [(torch.randn(size, 3), torch.randint(0, 3, (size,))) for size in sizes]


@pytest.mark.parametrize("unit", [1.0, 1e-5])
def test_errors_are_those_of_scikit_learn_whatever_the_batches(unit):
    """Also far from zero: in float32 the difference of the sums would be noise."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 10_000, 2, generator=generator)
    target = (torch.tensor([2000.0, -7.0]) + noise[0] * torch.tensor([5, 50])) * unit
    predicted = target + noise[1] * unit
    metric = RegressionErrors(["year", "size of it"])
    for rows in torch.arange(10_000).split(777):
        metric.update(predicted[rows], target[rows])
    values = metric.compute()
    scores = {"mse": mean_squared_error, "mae": mean_absolute_error, "r2": r2_score}
    for name, score in scores.items():
        ours = [values[f"{name}_{end}"].item() for end in ("year", "size of it")]
        theirs = score(target.double(), predicted.double(), multioutput="raw_values")
        assert ours == pytest.approx(theirs.tolist(), rel=1e-6)

    single = RegressionErrors(["one"])
    single.update(torch.tensor([[1.0], [2.0]]), torch.full((2, 1), 0.1))
    assert single.compute()["r2"].isnan(), "it never changes"


@pytest.mark.parametrize("flush_every", [2, 50])
def test_every_sample_counts_once_whatever_the_chunks(flush_every):
    metrics = StageMetrics("val", ACCURACY, flush_every=flush_every)
    steps = batches((4, 4, 1, 3, 4))
    metrics.add(torch.tensor(9.0), *steps[0])
    metrics.reset()  # forgets what was not flushed, too
    for logits, labels in steps:
        metrics.add(F.cross_entropy(logits, labels), logits, labels)
    assert len(metrics._steps) == 5 % flush_every, "few outputs are kept"
    values = metrics.compute()
    logits, labels = (torch.cat(part) for part in zip(*steps, strict=True))
    assert values["val/acc"] == (logits.argmax(1) == labels).float().mean()
    assert values["val/loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)


def test_a_users_metric_may_take_the_place_of_the_tasks():
    metrics = StageMetrics("val", ACCURACY, {"acc": MulticlassAccuracy(3, top_k=3)})
    for step in batches([9, 4]):
        metrics.add(torch.tensor(0.0), *step)
    assert metrics.compute()["val/acc"] == 1
    assert metrics.metrics["acc"].update_count == 2, (
        "sums of floats round alike, whenever a checkpoint makes a flush"
    )


@pytest.mark.parametrize(
    ("windows", "coverage", "rank"),
    [(20, 0.9, 19), (9, 0.9, 9), (3, 0.1, 1), (8, 0.9, 0)],
)
def test_the_radius_is_the_right_order_statistic(windows, coverage, rank):
    """Of the absolute errors of a point forecast; too few windows have none."""
    conformal, errors = Conformal(coverage), torch.arange(1.0, windows + 1).flip(0).view(-1, 1, 1)
    errors[::2] *= -1
    for part in errors.split(4):
        conformal.update(torch.zeros_like(part), torch.zeros_like(part), part)
    conformal.radius = conformal.compute()
    assert conformal.radius == (rank or None)
    ends = torch.stack(conformal.interval(errors, errors))
    expected = torch.stack([errors - rank, errors + rank])
    assert ends.equal(expected) if rank else ends.isnan().all()


@pytest.mark.parametrize(
    ("radius", "ends"), [(0.5, (-0.5, 1.5)), (-0.25, (0.25, 0.75)), (-2.0, (0.5, 0.5))]
)
def test_both_ends_are_moved_but_never_inside_out(radius, ends):
    conformal, one = Conformal(0.5), torch.ones(1, 1, 1)
    conformal.radius = radius * one[0]
    assert torch.cat(conformal.interval(0 * one, one)).flatten().tolist() == [*ends]
