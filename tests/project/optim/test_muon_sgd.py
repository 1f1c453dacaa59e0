"""MuonSGD: orthogonal updates for filters, SGD for the rest."""

import pytest
import torch
from torch import nn

from litlab.optim import GroupRule, ParamGroups
from litlab.tasks import Classifier
from project.optim.muon_sgd import MuonSGD


def _network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4))


def test_filters_move_by_the_learning_rate_whatever_the_gradient():
    moved = []
    for scale in (1.0, 1000.0):
        network = _network()
        with torch.no_grad():  # the norm that filters are kept at
            network[0].weight.mul_(8**0.5 / network[0].weight.norm())
        before = network[0].weight.detach().clone()
        (network(torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))).square().sum() * scale).backward()
        MuonSGD(network.parameters(), lr=0.1).step()
        moved.append(network[0].weight.detach() - before)
    torch.testing.assert_close(moved[0], moved[1], rtol=0.05, atol=5e-3)
    # 8 singular values of about 1, times the learning rate
    assert moved[0].norm() == pytest.approx(0.1 * 8**0.5, rel=0.3)


def test_the_rest_is_torchs_nesterov_sgd():
    ours, theirs = _network(), _network()
    for network in (ours, theirs):
        network[2].bias = None
    mine = MuonSGD(ours.parameters(), matrix_lr=0.01, sgd_momentum=0.9, weight_decay=0.02)
    reference = torch.optim.SGD([theirs[2].weight], lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.02 / 0.01)
    for _ in range(3):
        for network in (ours, theirs):
            network.zero_grad()
            network[2](torch.full((1, 8 * 36), 0.1)).square().sum().backward()
        mine.step()
        reference.step()
    torch.testing.assert_close(ours[2].weight, theirs[2].weight)


def test_state_survives_saving():
    network = _network()
    optimizer = MuonSGD(network.parameters())
    network(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    other = MuonSGD(_network().parameters())
    other.load_state_dict(optimizer.state_dict())
    for mine, theirs in zip(
        optimizer.state_dict()["state"].values(), other.state_dict()["state"].values(), strict=True
    ):
        assert torch.equal(mine["momentum"], theirs["momentum"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"lr": 0}, "lr is 0"), ({"momentum": 1.0}, "momentum is 1.0"), ({"weight_decay": -1}, "weight_decay -1")],
)
def test_refusals(settings, says):
    with pytest.raises(ValueError, match=says):
        MuonSGD(_network().parameters(), **settings)


def test_without_convolutions_it_says_so():
    with pytest.raises(ValueError, match="no convolution filters"):
        MuonSGD(nn.Linear(2, 2).parameters())


def test_groups_by_name_scale_its_rates_and_its_weight_decay():
    """A step takes the same share of the weights at any scale of the rate; each of its own groups is divided."""
    rules = [GroupRule("network.2", lr_scale=0.5, weight_decay=0.25)]
    model = Classifier(
        _network(), num_classes=4, optimizer=MuonSGD, param_groups=ParamGroups(rules, decay_norms_and_biases=False)
    )
    groups = model.new_optimizer().param_groups
    matrix, filter_bias, bias = model.network[2].weight, model.network[0].bias, model.network[2].bias
    found = {id(p): group for group in groups for p in group["params"]}
    assert found[id(model.network[0].weight)]["orthogonal"]
    assert found[id(model.network[0].weight)]["lr"] == 0.12
    assert (found[id(matrix)]["lr"], found[id(matrix)]["weight_decay"]) == (0.2, 0.25)
    assert (found[id(filter_bias)]["lr"], found[id(filter_bias)]["weight_decay"]) == (26.0, 0.0)
    assert (found[id(bias)]["lr"], found[id(bias)]["weight_decay"]) == (13.0, 0.25)

    before = matrix.detach().clone()
    matrix.grad = torch.zeros_like(matrix)
    model.new_optimizer().step()
    share = 0.5 * 0.25 * (1 + 0.85)  # of its own rate, with the first step of Nesterov's momentum
    torch.testing.assert_close(matrix.detach(), before * (1 - share))
