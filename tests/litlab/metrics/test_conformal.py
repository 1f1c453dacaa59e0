"""Conformal: the order statistic that the coverage takes."""

import pytest
import torch

from litlab.metrics.conformal import Conformal

CPU = torch.device("cpu")


def calibrated(scores, coverage) -> Conformal:
    """Calibrated by windows whose absolute errors are the scores, shape (window, 1, 1)."""
    conformal = Conformal(coverage, (1, 1))
    conformal.reset(CPU)
    scores = torch.tensor(scores, dtype=torch.float32).view(-1, 1, 1)
    signs = torch.ones_like(scores)
    signs[::2] = -1
    for part in (signs * scores).split(4):
        conformal.add(torch.zeros_like(part), torch.zeros_like(part), part)
    conformal.calibrate(lambda scores: scores)
    return conformal


@pytest.mark.parametrize(
    ("windows", "coverage", "rank"),
    [(19, 0.9, 18), (20, 0.9, 19), (9, 0.9, 9), (99, 0.55, 55), (99, 0.9, 90), (10, 0.5, 6), (3, 0.1, 1)],
)
def test_radius_is_the_right_order_statistic(windows, coverage, rank):
    scores = torch.randperm(windows, generator=torch.Generator().manual_seed(0)) + 1
    assert calibrated(scores.tolist(), coverage).radius == rank


def test_too_few_windows_are_no_calibration():
    conformal = calibrated(range(8), 0.9)
    assert conformal.windows_needed == 9
    assert conformal.radius is None
    lower, upper = conformal.interval(torch.zeros(2, 1, 1), torch.ones(2, 1, 1))
    assert lower.isnan().all()
    assert upper.isnan().all()
    assert Conformal(0.95, (1, 1)).windows_needed == 19


def test_each_step_and_channel_has_its_own_radius():
    conformal = Conformal(0.5, (3, 2))
    conformal.reset(CPU)
    future = torch.arange(1, 7).view(3, 2) * torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    conformal.add(torch.zeros(3, 3, 2), torch.zeros(3, 3, 2), future)
    conformal.calibrate(lambda scores: scores)
    assert conformal.radius.tolist() == [[2, 4], [6, 8], [10, 12]]


def test_quantile_intervals_are_moved_by_how_far_the_truth_lies_outside():
    conformal = Conformal(0.5, (1, 1))
    conformal.reset(CPU)
    future = torch.tensor([-3.0, 0.5, 1.5]).view(3, 1, 1)  # 3 below, 0.5 inside of both ends, 0.5 above
    conformal.add(torch.zeros(3, 1, 1), torch.ones(3, 1, 1), future)
    conformal.calibrate(lambda scores: scores)
    assert conformal.radius == 0.5
    lower, upper = conformal.interval(torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    assert (lower.item(), upper.item()) == (-0.5, 1.5)
    conformal.radius = torch.tensor([[-0.25]])
    lower, upper = conformal.interval(torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    assert (lower.item(), upper.item()) == (0.25, 0.75)
    conformal.radius = torch.tensor([[-2.0]])  # never inside out
    lower, upper = conformal.interval(torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
    assert (lower.item(), upper.item()) == (0.5, 0.5)


def test_a_second_calibration_forgets_the_first():
    conformal = calibrated([100.0] * 20, 0.9)
    conformal.reset(CPU)
    conformal.add(torch.zeros(20, 1, 1), torch.zeros(20, 1, 1), torch.ones(20, 1, 1))
    conformal.calibrate(lambda scores: scores)
    assert conformal.radius == 1
