"""Norms by the number of channels alone."""

import pytest
import torch

from project.networks.norms import GroupNorm, LayerNorm


@pytest.mark.parametrize(("norm", "groups"), [(GroupNorm(16), 8), (GroupNorm(16, groups=2), 2), (LayerNorm(16), 1)])
def test_what_has_mean_0_and_deviation_1(norm, groups):
    """The values of each group of each image; those of a smaller part of it have other means."""
    normed = norm(torch.randn(4, 16, 6, 5) * 3 + torch.arange(16.0)[:, None, None])
    parts = normed.unflatten(1, (groups, -1)).flatten(2)
    torch.testing.assert_close(parts.mean(2), torch.zeros(4, groups), rtol=0, atol=1e-5)
    torch.testing.assert_close(parts.std(2, correction=0), torch.ones(4, groups), rtol=0, atol=1e-3)
    assert normed.mean((2, 3)).abs().max() > 0.1
