"""The VGG-style network: its settings in Python, and its norm and activation as classes in YAML."""

import copy

import pytest
import torch
from torch import nn

from project.networks.norms import GroupNorm, LayerNorm
from project.networks.vgg import VGG
from tests.conftest import CONFIGS, command

SMALL = {"widths": (8, 8, 16), "hidden": (16,)}
NORMS = [nn.BatchNorm2d, GroupNorm, LayerNorm, nn.InstanceNorm2d, nn.Identity]


def _kinds(network: VGG) -> list[type]:
    return [type(layer) for layer in network.modules() if not list(layer.children())]


def test_layers_by_default():
    """In the order in which they draw their weights, and by the names that checkpoints know."""
    block = 2 * [nn.Conv2d, nn.BatchNorm2d, nn.ReLU] + [nn.MaxPool2d, nn.Dropout2d]
    assert _kinds(VGG()) == 3 * block + 2 * [nn.Linear, nn.ReLU, nn.Dropout] + [nn.Linear]
    shapes = {name: tuple(value.shape) for name, value in VGG().state_dict().items()}
    assert shapes["features.14.weight"] == (256, 128, 3, 3)
    assert shapes["head.6.weight"] == (10, 512)
    rates = [layer.p for layer in VGG().modules() if isinstance(layer, nn.Dropout2d | nn.Dropout)]
    assert rates == [0, 0, 0, 0.5, 0.5]


@pytest.mark.parametrize("norm", NORMS)
def test_each_norm_follows_each_convolution(norm):
    network = VGG(**SMALL, norm=norm)
    assert [kind for kind in _kinds(network) if kind in NORMS] == 6 * [norm]
    loss = network(torch.randn(4, 3, 32, 32)).square().sum()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("hidden", [(), (5,), (7, 6, 5)])
@pytest.mark.parametrize("widths", [(4,), (4, 4, 8, 8)])
def test_any_number_of_blocks_and_hidden_layers(widths, hidden):
    network = VGG(widths=widths, hidden=hidden, activation=nn.PReLU)
    assert [layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)] == [*hidden, 10]
    assert _kinds(network).count(nn.PReLU) == 2 * len(widths) + len(hidden)
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", ["block_dropout", "head_dropout"])
def test_each_dropout_is_for_training_only(name):
    """With all of it dropped, nothing of the image arrives."""
    others = {"block_dropout": 0.0, "head_dropout": 0.0, name: 1.0}
    network = VGG(**SMALL, **others)
    one, other = network(torch.randn(4, 3, 32, 32)), network(torch.randn(4, 3, 32, 32))
    assert torch.equal(one, other)
    network.eval()
    assert not torch.allclose(network(torch.randn(4, 3, 32, 32)), network(torch.randn(4, 3, 32, 32)))


def test_blocks_drop_whole_channels():
    network = VGG(**SMALL, block_dropout=0.5)
    features = network.features[:7](torch.randn(20, 3, 32, 32))
    dropped = features.flatten(2).eq(0).all(2)
    assert 0.3 < dropped.float().mean() < 0.7


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
    assert network["activation"]["class_path"] == "torch.nn.LeakyReLU"
    assert network["activation"]["init_args"]["negative_slope"] == 0.2
    assert "network.features.1.running_mean" not in checkpoint["state_dict"]  # a batch norm has one


def test_a_run_is_tested_by_its_folder_alone(run, folder, monkeypatch):
    monkeypatch.chdir(folder.parents[2])
    done = run("test", "--run", folder)
    assert done.code == 0, done.err
    assert "test/acc" in done.out


def test_the_network_of_a_command_line_can_be_copied(folder, run, monkeypatch):
    """A moving average of the weights copies the model that the command line has built."""
    monkeypatch.chdir(folder.parents[2])
    done = run("fit", "--config", folder / "config.yaml", "--ema.decay=0.9", "--trainer.fast_dev_run=1")
    assert done.code == 0, done.err
    network = VGG(**SMALL, norm=GroupNorm)
    assert copy.deepcopy(network).state_dict().keys() == network.state_dict().keys()


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("norm.groups=3", "model: num_channels (8) must be divisible by num_groups (3)"),
        ("norm=torch.nn.Linear", "model.network.norm: the following arguments are required: out_features"),
        ("norm=3", "model.network.norm: there is no class '3'"),
        ("activation=torch.nn.functional.gelu", "'torch.nn.functional.gelu' to be a function that returns"),
        ("widths=[8, 0]", "model: widths is (8, 0): it must be 1 or more"),
    ],
)
def test_mistakes(run, folder, flag, says, monkeypatch):
    monkeypatch.chdir(folder.parents[2])
    done = run("fit", "--config", folder / "config.yaml", f"--model.network.{flag}")
    assert done.code == 2
    assert says in done.err
    assert done.err.count("error: ") == 1


def test_a_norm_of_ones_own(run, images, own_part, tmp_path):
    """The one of docs/experiments.md, from the fit to a test by the run's folder."""
    overlay = own_part("experiments.md", "networks/rms_norm.py")
    small = ("--model.network.widths=[8, 8]", "--model.network.hidden=[]", "--data.batch_size=40")
    data = ("--data.dataset=folder", f"--data.path={images}", "--trainer.limit_train_batches=1")
    short = ("--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1")
    exact = "--trainer.precision=32-true"  # `auto` is bfloat16 on some CPUs, where torch warns of a slower RMSNorm
    done = run("fit", "--config", CONFIGS / "cifar_vgg.yaml", "--config", overlay, *small, *data, *short, exact)
    assert done.code == 0, done.err
    state = torch.load(tmp_path / "lightning_logs/cifar_vgg/version_0/checkpoints/last.ckpt", weights_only=True)
    assert "network.features.1.weight" in state["state_dict"]
    assert "network.features.1.bias" not in state["state_dict"]
    done = run("test", "--run", "last")
    assert done.code == 0, done.err
