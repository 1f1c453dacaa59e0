"""Any torchvision network, for other channels and classes."""

import pytest
import torch
import torchvision
from torch import nn

from litlab.errors import UserError
from litlab.nn.adapt import adapt_network


@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "regnet_y_400mf"]
)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_first_and_last_layers_are_adapted(name, channels):
    network = adapt_network(torchvision.models.get_model(name), (channels, 64, 64), 7)
    assert network.eval()(torch.randn(2, channels, 64, 64)).shape == (2, 7)


def test_grey_images_give_a_pretrained_network_the_response_that_they_gave():
    network = torchvision.models.resnet18()
    grey = torch.randn(2, 1, 64, 64)
    before = network.conv1(grey.expand(2, 3, 64, 64))
    adapt_network(network, (1, 64, 64), 10)
    torch.testing.assert_close(network.conv1(grey), before, rtol=1e-4, atol=1e-5)


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))


@pytest.mark.parametrize("network", [small(), torchvision.models.resnet18(num_classes=10)])
def test_what_fits_stays_as_it_is(network):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    layers = dict(network.named_modules())
    assert adapt_network(network, (3, 32, 32), 10) is network
    assert dict(network.named_modules()) == layers
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(before[name], value), name


def test_images_that_are_too_small_are_refused():
    with pytest.raises(UserError, match=r"model.network: AlexNet can't take images of 3 x 32 x 32 \(.*data.image_size"):
        adapt_network(torchvision.models.alexnet(), (3, 32, 32), 10)


def test_auxiliary_outputs_are_refused():
    network = torchvision.models.googlenet(init_weights=False)
    with pytest.raises(UserError, match=r"GoogLeNet does not return logits of shape .* auxiliary outputs off"):
        adapt_network(network, (3, 64, 64), 10)


def test_what_is_no_classifier_is_refused():
    with pytest.raises(UserError, match="Identity does not return logits of shape"):
        adapt_network(nn.Identity(), (3, 32, 32), 10)
