"""Any torchvision network, for other channels and classes."""

import pytest
import torch
from torch import nn
from torchvision.models import get_model

from litlab.errors import UserError
from litlab.nn.adapt import adapt_network, forget_weights


@pytest.mark.parametrize(("name", "channels"), [("shufflenet_v2_x0_5", 1), ("squeezenet1_1", 4)])
def test_first_and_last_layers_are_adapted(name, channels):
    network = adapt_network(get_model(name), (channels, 64, 64), 7)
    assert network.eval()(torch.randn(2, channels, 64, 64)).shape == (2, 7)


def test_grey_images_give_a_pretrained_network_the_response_that_they_gave():
    network, grey = get_model("resnet18"), torch.randn(2, 1, 64, 64)
    before = network.conv1(grey.expand(2, 3, 64, 64))
    assert adapt_network(network, (1, 64, 64), 10) is network
    torch.testing.assert_close(network.conv1(grey), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (
            nn.Sequential(nn.Flatten(), nn.Linear(5, 3)),
            r"Sequential can't take images of \(3, 32, 32\) \(.*data.image_size",
        ),
        (get_model("googlenet", init_weights=False), "GoogLeNet does not return logits"),
        (nn.Identity(), "Identity does not return logits of .* auxiliary outputs off"),
    ],
)
def test_refusals(network, says):
    with pytest.raises(UserError, match=f"model.network: {says}"):
        adapt_network(network, (3, 32, 32), 10)


def test_a_checkpoint_is_rebuilt_without_a_download():
    settings = {"weights": "DEFAULT", "pretrained": True}
    forget_weights(settings)
    assert settings == {"weights": None, "pretrained": False}
