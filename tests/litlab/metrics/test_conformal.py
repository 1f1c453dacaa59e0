"""Conformal: the order statistic that the coverage takes."""

import pytest
import torch

from litlab.metrics.conformal import Conformal


def calibrated(scores, coverage) -> Conformal:
    """Calibrated by windows whose absolute errors are the scores, shape (window, 1, 1)."""
    conformal = Conformal(coverage)
    scores = torch.tensor(scores, dtype=torch.float32).view(-1, 1, 1)
    signs = torch.ones_like(scores)
    signs[::2] = -1
    for part in (signs * scores).split(4):
        conformal.update(torch.zeros_like(part), torch.zeros_like(part), part)
    conformal.calibrate()
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
    assert conformal.radius is None
    ends = conformal.interval(torch.zeros(2, 1, 1), torch.ones(2, 1, 1))
    assert all(end.isnan().all() for end in ends)


def test_quantile_intervals_are_moved_by_how_far_the_truth_lies_outside():
    conformal = Conformal(0.5)
    future = torch.tensor([-3.0, 0.5, 1.5]).view(3, 1, 1)  # 3 below, 0.5 inside of both ends, 0.5 above
    conformal.update(torch.zeros(3, 1, 1), torch.ones(3, 1, 1), future)
    conformal.calibrate()
    assert conformal.radius == 0.5
    for radius, ends in ((0.5, (-0.5, 1.5)), (-0.25, (0.25, 0.75)), (-2.0, (0.5, 0.5))):  # never inside out
        conformal.radius = torch.tensor([[radius]])
        lower, upper = conformal.interval(torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
        assert (lower.item(), upper.item()) == ends
