"""Weights that are taken over from a checkpoint."""

import pytest
import torch
from torch import nn

from litlab.checkpointing.weights import initialise
from litlab.errors import UserError


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


WITHIN = {  # a file of a script, around its weights
    "Lightning": lambda weights: {
        "model": weights | {"0.weight": torch.zeros(2, 3)},
        "state_dict": weights,
        "pytorch-lightning_version": "2",
    },
    "bare": lambda weights: weights,
    "torchvision": lambda weights: {
        "model": weights,
        "model_ema": weights | {"0.weight": torch.zeros(2, 3)},
    },
    "tutorial": lambda weights: {
        "best": torch.tensor(0.9),
        "model_state_dict": weights,
        "optimizer_state_dict": {"state": {0: weights}},
    },
    "some": lambda weights: {
        "random": {"torch": torch.get_rng_state()},
        "net": weights,
        "epoch": 3,
    },
}


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("prefix", ["", "module._orig_mod."])
def test_weights_of_any_file_are_taken_over(tmp_path, caplog, prefix, within):
    model, other = network(), network()
    weights = {f"{prefix}{name}": value for name, value in other.state_dict().items()}
    weights[f"{prefix}0.bias"] = torch.zeros(9)
    weights[f"{prefix}head"] = torch.zeros(1)
    torch.save(WITHIN[within](weights), tmp_path / "some.pt")
    bias = model.state_dict()["0.bias"].clone()
    initialise(model, tmp_path / "some.pt")
    assert torch.equal(model.state_dict()["0.weight"], other.state_dict()["0.weight"])
    assert torch.equal(model.state_dict()["0.bias"], bias)
    assert "6 of the model's 7 tensors match" in caplog.text
    assert "left as initialised: 0.bias" in caplog.text


def test_weights_of_something_else(tmp_path):
    torch.save(network().state_dict(), tmp_path / "some.pt")
    with pytest.raises(
        UserError, match=r"^init_from: none of the 7 tensors of .*some.pt has the name and shape"
    ):
        initialise(nn.Linear(5, 5), tmp_path / "some.pt")


def test_which_weights_is_not_guessed(tmp_path):
    path = tmp_path / "gan.pt"
    torch.save({"teacher": network().state_dict(), "student": network().state_dict()}, path)
    with pytest.raises(
        UserError, match=r"^init_from: .*gan.pt has weights under teacher, student; .*: "
    ) as refused:
        initialise(network(), path)
    line = (
        str(refused.value).rpartition(": ")[2].replace("weights.pt", str(tmp_path / "weights.pt"))
    )
    exec(line, {"torch": torch})
    initialise(network(), tmp_path / "weights.pt")
