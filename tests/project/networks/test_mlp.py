"""The multi-layer perceptron, sized by its data."""

import json

import pytest
import torch
from torch import nn

from project.networks.mlp import MLP
from tests.conftest import CONFIGS

SHAPE = {"image_shape": (1, 4, 5), "num_classes": 3}


@pytest.mark.parametrize(("dropout", "rates"), [(0.3, [0.3, 0.3]), ([0.3, 0.2], [0.3, 0.2])])
def test_layers(dropout, rates):
    network = MLP((7, 6), nn.GELU, nn.LayerNorm, dropout, **SHAPE)
    hidden = [nn.Linear, nn.LayerNorm, nn.GELU, nn.Dropout]
    assert [type(layer) for layer in network.layers] == [nn.Flatten, *hidden, *hidden, nn.Linear]
    sizes = [(layer.in_features, layer.out_features) for layer in network.layers if isinstance(layer, nn.Linear)]
    assert sizes == [(20, 7), (7, 6), (6, 3)]
    assert [layer.p for layer in network.layers if isinstance(layer, nn.Dropout)] == rates


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hidden_sizes": (7, 0), **SHAPE}, r"hidden_sizes is \(7, 0\): it must be 1 or more"),
        ({"num_classes": 3}, "image_shape and num_classes are not set"),
        ({"dropout": [0.1], **SHAPE}, r"dropout is \[0.1\]: give one number, or one for each of the 2 layers"),
    ],
)
def test_sizes_that_make_no_network(settings, says):
    with pytest.raises(ValueError, match=says):
        MLP(**settings)


def test_the_config_sizes_it_by_the_data_and_compares_it_with_the_nearest_mean(run, images, tmp_path):
    data = ("--data.dataset=folder", f"--data.path={images}", "--data.mode=L", "--data.batch_size=40")
    short = ("--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1")
    mine = ("--model.network.hidden_sizes=[8]", "--model.network.dropout=[0.3]", "--model.optimizer=RMSprop")
    done = run("fit", "--config", CONFIGS / "mlp.yaml", *data, *short, *mine)
    assert done.code == 0, done.err
    folder = tmp_path / "lightning_logs/mlp/version_0"
    checkpoint = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
    settings = checkpoint["hyper_parameters"]["network"]["init_args"]
    assert settings["dropout"] == [0.3]
    assert "square_avg" in checkpoint["optimizer_states"][0]["state"][0]  # of RMSprop
    assert (tuple(settings["image_shape"]), settings["num_classes"]) == ((1, 32, 32), 10)
    assert checkpoint["state_dict"]["network.layers.1.weight"].shape == (8, 1024)
    rows = json.loads((folder / "baselines.json").read_text())
    assert rows.keys() == {"Classifier", "nearest class mean"}
    assert rows["nearest class mean"]["test/acc"] > 0.9  # the classes differ in brightness
    done = run("test", "--run", "last")
    assert done.code == 0, done.err
