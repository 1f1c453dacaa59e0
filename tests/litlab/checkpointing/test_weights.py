"""Weights that are taken over from a checkpoint."""

from pathlib import Path

import pytest
import torch
from torch import nn

from litlab.checkpointing.weights import initialise
from litlab.errors import UserError


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


OTHERS = network().state_dict()
WITHIN = {  # what the file of a script has beside its weights, and where these are
    "Lightning": ({"model": OTHERS, "pytorch-lightning_version": "2"}, "state_dict"),
    "torchvision": ({"model_ema": OTHERS}, "model"),
    "tutorial": (
        {"best": torch.tensor(0.9), "optimizer_state_dict": {"state": {0: OTHERS}}},
        "model_state_dict",
    ),
    "some": ({"random": {"torch": torch.get_rng_state()}, "epoch": 3}, "net"),
    "bare": ({}, None),
}


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("prefix", ["", "module._orig_mod."])
def test_weights_of_any_file_are_taken_over(tmp_path, caplog, prefix, within):
    model, other = network(), network()
    weights = {f"{prefix}{name}": value for name, value in other.state_dict().items()}
    weights[f"{prefix}0.bias"] = torch.zeros(9)
    weights[f"{prefix}head"] = torch.zeros(1)
    beside, name = WITHIN[within]
    torch.save({**beside, name: weights} if name else weights, tmp_path / "some.pt")
    bias = model.state_dict()["0.bias"].clone()
    initialise(model, tmp_path / "some.pt")
    assert torch.equal(model.state_dict()["0.weight"], other.state_dict()["0.weight"])
    assert torch.equal(model.state_dict()["0.bias"], bias)
    assert "6 of the model's 7 tensors match" in caplog.text
    assert "left as initialised: 0.bias" in caplog.text


def test_weights_of_something_else(tmp_path):
    torch.save(network().state_dict(), tmp_path / "some.pt")
    says = r"^init_from: none of the 7 tensors of .*some.pt has the name and shape"
    with pytest.raises(UserError, match=says):
        initialise(nn.Linear(5, 5), tmp_path / "some.pt")


def test_which_weights_is_not_guessed(tmp_path, monkeypatch):
    path = tmp_path / "gan.pt"
    torch.save({"teacher": network().state_dict(), "student": network().state_dict()}, path)
    says = r"^init_from: .*gan.pt has weights under teacher, student; .*: "
    with pytest.raises(UserError, match=says) as refused:
        initialise(network(), path)
    monkeypatch.chdir(tmp_path)
    exec(str(refused.value).rpartition(": ")[2], {"torch": torch})
    initialise(network(), Path("weights.pt"))
