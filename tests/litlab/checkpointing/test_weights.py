"""Weights that are taken over from a checkpoint."""

import pytest
import torch
from torch import nn

from litlab.checkpointing.weights import initialise
from litlab.errors import UserError


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


@pytest.mark.parametrize(("prefix", "bare"), [("", False), ("module._orig_mod.", True)])
def test_weights_of_any_file_are_taken_over(tmp_path, caplog, prefix, bare):
    model, other = network(), network()
    weights = {f"{prefix}{name}": value for name, value in other.state_dict().items()}
    weights[f"{prefix}0.bias"] = torch.zeros(9)
    weights[f"{prefix}head"] = torch.zeros(1)
    torch.save(weights if bare else {"state_dict": weights, "pytorch-lightning_version": "2"}, tmp_path / "some.pt")
    bias = model.state_dict()["0.bias"].clone()
    initialise(model, tmp_path / "some.pt")
    assert torch.equal(model.state_dict()["0.weight"], other.state_dict()["0.weight"])
    assert torch.equal(model.state_dict()["0.bias"], bias)
    assert "6 of the model's 7 tensors match" in caplog.text
    assert "left as initialised: 0.bias" in caplog.text


def test_weights_of_something_else(tmp_path):
    torch.save(network().state_dict(), tmp_path / "some.pt")
    with pytest.raises(UserError, match=r"^init_from: none of the 7 tensors of .*some.pt has the name and shape"):
        initialise(nn.Linear(5, 5), tmp_path / "some.pt")
