"""Ready-made networks: what is loaded, what takes its place, and how they are fitted to the
data.
"""

import re
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn
from torchvision.models import get_model

from litlab.nn import pretrained
from litlab.nn.adapt import adapt_network
from tests.litlab.data.conftest import refusal
from tests.tiny_files import flip


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
        (nn.Identity(), "Identity does not return logits of .* turn off its auxiliary outputs"),
    ],
)
def test_refusals(network, says):
    assert re.match(f"model.network: {says}", refusal(adapt_network, network, (3, 32, 32), 10))


URL = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url


@pytest.fixture(autouse=True)
def file(run, monkeypatch, tmp_path) -> Path:
    """The place of a download; where commands run there is no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    file = tmp_path / "torch/hub/checkpoints" / URL.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    return file


def test_weights_come_from_torchs_cache_and_no_code(file):
    torch.save(torchvision.models.resnet18().state_dict(), file)
    assert not hasattr(pretrained("resnet18", "IMAGENET1K_V1"), "stand_in")

    line = f"{file}: it contains something other than weights, or is damaged; delete it"
    flip(file, 0.5)
    assert refusal(pretrained, "resnet18", fallback="random") == line
    torch.save({"fc.bias": torch.nn.Linear(1, 1)}, file)  # a class, that a pickle may call
    assert refusal(pretrained, "resnet18", fallback="random") == line


def test_weights_that_are_not_there_are_refused_with_those_that_are():
    line = "resnet18 has no IMAGENET1K_V9; choose one of IMAGENET1K_V1, DEFAULT"
    assert line in refusal(pretrained, "resnet18", "IMAGENET1K_V9")


def test_random_weights_take_their_place_aloud_and_only_if_told(file):
    line = f"; save {URL} as {file}, or set fallback: random"
    assert refusal(pretrained, "resnet18").endswith(line)
    with pytest.warns(UserWarning, match="The weights are RANDOM, not pre-trained: .*To get"):
        network = pretrained("resnet18", fallback="random")
    assert network.stand_in == "RANDOM, not pre-trained: DEFAULT of resnet18 can't be downloaded"
