"""The VGG-style network: its settings in Python, and its norm and activation as classes in YAML."""

import pytest
import torch
from torch import nn

from project.networks.vgg import VGG
from tests.conftest import CONFIGS, command

SMALL = {"widths": (8, 8, 16), "hidden": (16,)}


def test_each_layer_has_its_dropout():
    network = VGG(**{**SMALL, "hidden": (16, 8)}, block_dropout=[0.1, 0.5, 0], head_dropout=[0.5, 0.3])
    rates = [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout2d | nn.Dropout)]
    assert rates == [0.1, 0.5, 0, 0.5, 0.3]
    dropped = network.features[:14](torch.randn(20, 3, 32, 32)).flatten(2).eq(0).all(2)  # whole channels
    assert 0.3 < dropped.float().mean() < 0.7
    with pytest.raises(ValueError, match=r"block_dropout is \[0.1\]: give one number, or one for each of the 3 layers"):
        VGG(block_dropout=[0.1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, images):
    """The run of a fit with norm and activation by YAML."""
    root = tmp_path_factory.mktemp("vgg")
    overlay = root / "groups.yaml"
    overlay.write_text("""
model:
  init_args:
    network:
      init_args:
        widths: [8, 8, 16]
        hidden: [16]
        norm: {class_path: project.networks.norms.GroupNorm, init_args: {groups: 4}}
        activation: {class_path: torch.nn.LeakyReLU, init_args: {negative_slope: 0.2}}
        block_dropout: [0.1, 0.2, 0]
""")
    flags = ("--data.dataset=folder", f"--data.path={images}", "--data.batch_size=40", "--trainer.max_epochs=1")
    flags += ("--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        code = command(
            patch, "fit", "--config", CONFIGS / "cifar_vgg.yaml", "--config", overlay, *flags
        )  # fmt: skip
    assert code == 0
    return root / "lightning_logs/cifar_vgg/version_0"


def test_norm_and_activation_are_plain_settings_in_the_checkpoint(folder):
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    network = checkpoint["hyper_parameters"]["network"]["init_args"]
    assert network["norm"] == {"class_path": "project.networks.norms.GroupNorm", "init_args": {"groups": 4}}
    assert network["block_dropout"] == [0.1, 0.2, 0]
    assert network["activation"]["class_path"] == "torch.nn.LeakyReLU"
    assert network["activation"]["init_args"]["negative_slope"] == 0.2
    assert "network.features.1.running_mean" not in checkpoint["state_dict"]  # a batch norm has one


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("norm.groups=3", "model: num_channels (8) must be divisible by num_groups (3)"),
        ("norm=3", "model.network.norm: there is no class '3'"),
        (
            "head_dropout=[0.5, 0.3]",
            "model: head_dropout is [0.5, 0.3]: give one number, or one for each of the",
        ),
    ],
)
def test_mistakes(run, folder, flag, says, monkeypatch):
    monkeypatch.chdir(folder.parents[2])
    done = run("fit", "--config", folder / "config.yaml", f"--model.network.{flag}")
    assert done.code == 2
    assert says in done.err
    assert done.err.count("error: ") == 1
