"""The networks of images: shapes, the whitened start, dropout by layer, norms."""

import pytest
import torch
from torch import nn

from project.networks.layers import GroupNorm, LayerNorm
from project.networks.mlp import MLP
from project.networks.vgg import VGG
from project.networks.whitened_cnn import WhitenedCNN


@pytest.mark.parametrize(
    ("network", "size"),
    [(VGG(1, 5), 28), (VGG(), 48), (WhitenedCNN(1, 5), 28), (WhitenedCNN(), 48)],
)
def test_other_channels_classes_and_sizes(network, size):
    channels, classes = (1, 5) if size == 28 else (3, 10)
    assert network.eval()(torch.randn(2, channels, size, size)).shape == (2, classes)


def test_convolutions_start_as_the_identity():
    block = WhitenedCNN(widths=(32, 64, 64)).blocks[1]
    images = torch.randn(2, 32, 8, 8)
    torch.testing.assert_close(block.conv1(images)[:, :32], images)


@pytest.mark.parametrize(("dropout", "rates"), [(0.3, [0.3, 0.3]), ([0.3, 0.2], [0.3, 0.2])])
def test_layers_of_the_mlp(dropout, rates):
    network = MLP((7, 6), nn.GELU, nn.LayerNorm, dropout, image_shape=(1, 4, 5), num_classes=3)
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds == ["Flatten", *["Linear", "LayerNorm", "GELU", "Dropout"] * 2, "Linear"]
    assert [layer.p for layer in network.layers if isinstance(layer, nn.Dropout)] == rates
    assert network(torch.randn(2, 1, 4, 5)).shape == (2, 3)


def test_each_layer_has_its_dropout():
    network = VGG(
        widths=(8, 8, 16), hidden=(16, 8), block_dropout=[0.1, 0.5, 0], head_dropout=[0.5, 0.3]
    )
    rates = [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout2d | nn.Dropout)]
    assert rates == [0.1, 0.5, 0, 0.5, 0.3]
    # Whole channels
    dropped = network.features[:14](torch.randn(20, 3, 32, 32)).flatten(2).eq(0).all(2)
    assert 0.3 < dropped.float().mean() < 0.7


@pytest.mark.parametrize(("norm", "groups"), [(GroupNorm(16, groups=2), 2), (LayerNorm(16), 1)])
def test_what_has_mean_0_and_deviation_1(norm, groups):
    """The values of each group of each image; those of a smaller part of it have other means."""
    normed = norm(torch.randn(4, 16, 6, 5) * 3 + torch.arange(16.0)[:, None, None])
    parts = normed.unflatten(1, (groups, -1)).flatten(2)
    torch.testing.assert_close(parts.mean(2), torch.zeros(4, groups), rtol=0, atol=1e-5)
    torch.testing.assert_close(parts.std(2, correction=0), torch.ones(4, groups), rtol=0, atol=1e-3)
