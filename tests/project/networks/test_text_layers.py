"""Positions, convolution stem, patches and pooling, each against its definition."""

import pytest
import torch
from torch.nn import functional as F

from project.networks.text_layers import ConvStem, Patches, Pooling, sinusoidal_positions


@pytest.fixture
def tokens():
    """Two texts of 5 and 3 tokens in a batch of 6, zeros at padding, and which tokens are real."""
    torch.manual_seed(0)
    real = torch.arange(6) < torch.tensor([5, 3])[:, None]
    return torch.randn(2, 6, 4).masked_fill(~real[:, :, None], 0.0), real


@pytest.mark.parametrize("dim", [6, 7])
def test_sinusoidal_positions_are_those_of_the_paper(dim):
    columns = torch.arange(dim)
    angles = torch.arange(50)[:, None] / 10000 ** ((columns - columns % 2) / dim)
    waves = torch.where(columns % 2 == 1, angles.cos(), angles.sin())
    torch.testing.assert_close(sinusoidal_positions(50, dim), waves, rtol=0, atol=1e-4)


def test_stem_adds_the_convolution_of_each_text_by_itself(tokens):
    x, real = tokens
    stem = ConvStem(4, kernel_size=3)
    expected = (x + F.gelu(stem.convolution(x.mT).mT)) * real[:, :, None]
    torch.testing.assert_close(stem(x, real), expected)


def test_patches_are_a_linear_layer_plus_the_mean_over_real_tokens(tokens):
    x, real = tokens
    patches = Patches(4, size=2)
    joined, kept = patches(x, real)
    assert kept.tolist() == [[True, True, True], [True, True, False]]
    torch.testing.assert_close(
        joined[0, 0], patches.projection(torch.cat([x[0, 0], x[0, 1]])) + x[0, :2].mean(0)
    )
    half = patches.projection(torch.cat([x[1, 2], torch.zeros(4)]))
    torch.testing.assert_close(joined[1, 1], half + x[1, 2])  # one real token: its mean is itself


def test_pooling_takes_real_tokens_only(tokens):
    x, real = tokens
    x = x.masked_fill(~real[:, :, None], 99.0)
    pooling = Pooling(4, ("mean", "max", "attention"))
    pooled = pooling(x, real)
    for row, length in enumerate((5, 3)):
        alone = x[row, :length]
        weights = (alone @ pooling.score.weight[0]).softmax(0)
        expected = torch.cat([alone.mean(0), alone.amax(0), weights @ alone])
        torch.testing.assert_close(pooled[row], expected)
