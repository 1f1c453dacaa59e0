"""MeanLoss, against all samples at once."""

import pytest
import torch

from litlab.metrics.mean_loss import MeanLoss

CPU = torch.device("cpu")


@pytest.mark.parametrize("flush_every", [1, 2, 50])
def test_mean_loss_weighs_by_samples(flush_every):
    mean = MeanLoss(flush_every)
    for loss, samples in ((1.0, 3), (2.0, 1), (4.0, 4)):
        mean.add(torch.tensor(loss), samples)
    assert mean.compute(lambda sums: sums) == (3 + 2 + 16) / 8
    mean.add(torch.tensor(6.0), 2)
    assert mean.flush() == 6  # of what was not flushed yet
    assert mean.compute(lambda sums: sums) == (3 + 2 + 16 + 12) / 10
    assert mean.compute(lambda sums: sums) == (3 + 2 + 16 + 12) / 10
    mean.reset(CPU)
    mean.add(torch.tensor(float("nan")), 1)
    assert mean.compute(lambda sums: sums).isnan()


def test_recent_loss_weighs_by_samples_too():
    mean = MeanLoss()
    for loss, samples in ((1.0, 3), (2.0, 1)):
        mean.add(torch.tensor(loss), samples)
    assert mean.flush() == 1.25


def test_it_goes_on_from_its_sums_bit_by_bit():
    """Also what is remembered and not added up yet: the next `flush` tells the mean of the same steps."""
    torch.manual_seed(0)
    losses = torch.rand(40)
    whole = MeanLoss(flush_every=7)
    for loss in losses:
        whole.add(loss, 3)
    for saved_after in range(0, 40, 3):
        first, second = MeanLoss(flush_every=7), MeanLoss(flush_every=7)
        for loss in losses[:saved_after]:
            first.add(loss, 3)
        second.load_state(first.state(), torch.device("cpu"))
        for loss in losses[saved_after:]:
            first.add(loss, 3)
            second.add(loss, 3)
        assert len(second._steps) == len(first._steps) == len(whole._steps) == 5
        assert first.flush() == second.flush() == losses[35:].double().mean()
        assert torch.equal(first._sums, second._sums)
