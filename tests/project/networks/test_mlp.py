"""The multi-layer perceptron, sized by its data."""

import pytest
from torch import nn

from project.networks.mlp import MLP


@pytest.mark.parametrize(("dropout", "rates"), [(0.3, [0.3, 0.3]), ([0.3, 0.2], [0.3, 0.2])])
def test_layers(dropout, rates):
    network = MLP((7, 6), nn.GELU, nn.LayerNorm, dropout, image_shape=(1, 4, 5), num_classes=3)
    hidden = [nn.Linear, nn.LayerNorm, nn.GELU, nn.Dropout]
    assert [type(layer) for layer in network.layers] == [nn.Flatten, *hidden, *hidden, nn.Linear]
    sizes = [(layer.in_features, layer.out_features) for layer in network.layers if isinstance(layer, nn.Linear)]
    assert sizes == [(20, 7), (7, 6), (6, 3)]
    assert [layer.p for layer in network.layers if isinstance(layer, nn.Dropout)] == rates
