"""The optimizer of the CIFAR experiment, against its recipe written out."""

import copy

import torch
from torch import nn

from litlab.optim import orthogonalise
from project.models.cifar_muon import CifarMuon


def test_the_recipe(monkeypatch):
    """Filters: Nesterov's momentum, orthogonal, at unit norm. The rest: SGD, whose decay is the
    same share for all.
    """
    monkeypatch.setattr("litlab.optim.muon.has_fast_bfloat16", lambda device: False)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4))
    filters, bias, head, head_bias = weights = [*copy.deepcopy(network).parameters()]
    groups = [
        {"params": [head], "lr": 0.4, "weight_decay": 1e-3 / 0.4},
        {"params": [bias, head_bias], "lr": 26.0, "weight_decay": 1e-3 / 26},
    ]
    rest = torch.optim.SGD(groups, momentum=0.85, nesterov=True)
    optimizer, momentum = CifarMuon(network.parameters()), torch.zeros_like(filters)
    optimizer.divide(network)
    for _ in range(3):
        for parameter, weight in zip(network.parameters(), weights, strict=True):
            parameter.grad = weight.grad = torch.randn_like(weight)
        optimizer.step()
        rest.step()
        momentum = 0.6 * momentum + filters.grad
        update = orthogonalise((filters.grad + 0.6 * momentum).flatten(1), iterations=3)
        with torch.no_grad():
            filters *= 8**0.5 / filters.norm()
            filters -= 0.12 * update.view_as(filters)
    torch.testing.assert_close([*network.parameters()], weights)
