"""Pre-trained networks: what is loaded, what takes its place, and how loudly."""

from pathlib import Path

import pytest
import torch
import torchvision

from litlab.errors import UserError
from litlab.nn import pretrained
from tests.conftest import OFFLINE

URL = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.url


@pytest.fixture(autouse=True)
def file(monkeypatch, tmp_path) -> Path:
    """The place of a download, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "torch/hub/checkpoints" / URL.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    return file


def test_weights_come_from_torchs_cache_and_no_code(file):
    saved = torchvision.models.resnet18().state_dict()
    torch.save(saved, file)
    network = pretrained("resnet18", "IMAGENET1K_V1")
    assert torch.equal(network.conv1.weight, saved["conv1.weight"])
    torch.save({"fc.bias": torch.nn.Linear(1, 1)}, file)  # a class, that a pickle may call
    with pytest.raises(UserError, match=f"^{file}: it holds other things than weights, or is damaged; delete it$"):
        pretrained("resnet18", fallback="random")


def test_random_weights_take_their_place_aloud_and_only_if_told(file):
    assert not hasattr(pretrained("resnet18", None), "stand_in")
    with pytest.raises(UserError, match=f"can't be downloaded .*; save {URL} as {file}, or set fallback: random$"):
        pretrained("resnet18")
    with pytest.warns(UserWarning, match="The weights are RANDOM, not pre-trained: .*For the real ones"):
        network = pretrained("resnet18", fallback="random")
    assert network.stand_in == "RANDOM, not pre-trained: DEFAULT of resnet18 can't be downloaded"
