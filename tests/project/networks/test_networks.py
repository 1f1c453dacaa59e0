"""The networks of images: shapes, the whitened start, dropout by layer, norms."""

from functools import partial

import pytest
import torch
from torch import nn

from project.networks.layers import GroupNorm, LayerNorm
from project.networks.mlp import MLP
from project.networks.vgg import VGG
from project.networks.whitened_cnn import WhitenedCNN


@pytest.mark.parametrize("kind", [VGG, WhitenedCNN])
def test_other_channels_classes_and_sizes(kind):
    for channels, classes, size in ((1, 5, 28), (3, 10, 48)):
        network = kind(channels, classes).eval()
        assert network(torch.randn(2, channels, size, size)).shape == (2, classes)


def test_convolutions_start_as_the_identity():
    block = WhitenedCNN(widths=(32, 64, 64)).blocks[1]
    images = torch.randn(2, 32, 8, 8)
    torch.testing.assert_close(block.conv1(images)[:, :32], images)


SMALL_MLP = partial(MLP, (7, 6), norm=nn.LayerNorm, image_shape=(1, 4, 5), num_classes=3)
SMALL_VGG = partial(VGG, widths=(8, 8, 16), hidden=(16, 8), block_dropout=[0.1, 0.5, 0])


@pytest.mark.parametrize(
    ("network", "rates"),
    [
        (SMALL_MLP(dropout=0.3), [0.3, 0.3]),
        (SMALL_MLP(dropout=[0.3, 0.2]), [0.3, 0.2]),
        (SMALL_VGG(head_dropout=[0.5, 0.3]), [0.1, 0.5, 0, 0.5, 0.3]),
    ],
)
def test_each_layer_has_its_dropout(network, rates):
    found = [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout2d | nn.Dropout)]
    assert found == rates


def test_blocks_of_vgg_halve_images_and_drop_whole_channels():
    network, images = SMALL_VGG(), torch.randn(20, 3, 32, 32)
    assert network.features(images).shape == (20, 16, 4, 4)
    dropped = network.features[:14](images).flatten(2).eq(0).all(2)
    assert 0.3 < dropped.float().mean() < 0.7


@pytest.mark.parametrize(("norm", "groups"), [(GroupNorm(16, groups=2), 2), (LayerNorm(16), 1)])
def test_what_has_mean_0_and_deviation_1(norm, groups):
    """The values of each group of each image; those of a smaller part of it have other means."""
    normed = norm(torch.randn(4, 16, 6, 5) * 3 + torch.arange(16.0)[:, None, None])
    parts = normed.unflatten(1, (groups, -1)).flatten(2)
    torch.testing.assert_close(parts.mean(2), torch.zeros(4, groups), rtol=0, atol=1e-5)
    torch.testing.assert_close(parts.std(2, correction=0), torch.ones(4, groups), rtol=0, atol=1e-3)
