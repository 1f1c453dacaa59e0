"""The VGG-style network, which takes a share to drop for each of its parts."""

import pytest
import torch
from torch import nn

from project.networks.vgg import VGG


def test_each_layer_has_its_dropout():
    network = VGG(widths=(8, 8, 16), hidden=(16, 8), block_dropout=[0.1, 0.5, 0], head_dropout=[0.5, 0.3])
    rates = [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout2d | nn.Dropout)]
    assert rates == [0.1, 0.5, 0, 0.5, 0.3]
    dropped = network.features[:14](torch.randn(20, 3, 32, 32)).flatten(2).eq(0).all(2)  # whole channels
    assert 0.3 < dropped.float().mean() < 0.7
    with pytest.raises(ValueError, match=r"block_dropout is \[0.1\]: give one number, or one for each of the 3 layers"):
        VGG(block_dropout=[0.1])
