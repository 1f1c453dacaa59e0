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


@pytest.mark.parametrize("norm", [GroupNorm(16), LayerNorm(16)])
def test_an_image_does_not_depend_on_the_batch_and_each_channel_is_scaled(norm):
    images = torch.randn(4, 16, 6, 5)
    torch.testing.assert_close(norm(images)[:1], norm(images[:1]))
    with torch.no_grad():
        norm.weight[3], norm.bias[3] = 0.0, 7.0
    assert norm(images)[:, 3].eq(7).all()
    assert not norm(images)[:, 2].eq(7).any()
