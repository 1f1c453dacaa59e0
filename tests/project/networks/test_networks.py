"""The networks' shapes and the whitened start."""

import pytest
import torch

from project.networks.vgg import VGG
from project.networks.whitened_cnn import WhitenedCNN


@pytest.mark.parametrize(
    ("network", "size"), [(VGG(1, 5), 28), (VGG(), 48), (WhitenedCNN(1, 5), 28), (WhitenedCNN(), 48)]
)
def test_other_channels_classes_and_sizes(network, size):
    channels, classes = (1, 5) if size == 28 else (3, 10)
    assert network.eval()(torch.randn(2, channels, size, size)).shape == (2, classes)


def test_convolutions_start_as_the_identity():
    block = WhitenedCNN(widths=(32, 64, 64)).blocks[1]
    images = torch.randn(2, 32, 8, 8)
    torch.testing.assert_close(block.conv1(images)[:, :32], images)


def test_whitening_is_kept_in_the_state_and_not_trained():
    network = WhitenedCNN()
    network.whiten(torch.randn(50, 3, 32, 32))
    other = WhitenedCNN()
    other.load_state_dict(network.state_dict())
    assert other.whitened
    assert torch.equal(other.filters, network.filters)
    assert "filters" not in dict(network.named_parameters())
