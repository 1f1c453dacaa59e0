"""Muon: equal to torch's where that takes a parameter, to AdamW and SGD elsewhere; which weights
are hidden.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from litlab.errors import UserError
from litlab.optim import GroupRule, Muon, ParamGroups, Schedule, orthogonalise
from litlab.tasks import Classifier


class Network(nn.Module):
    """An embedding, positions, a bank of filters, hidden matrices, one score, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.positions = nn.Parameter(torch.randn(5, 8))
        self.embedding = nn.Embedding(11, 8)
        self.convolution = nn.Conv1d(8, 6, 3, padding=1)
        self.hidden = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 4))
        self.score = nn.Linear(4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, ids):
        x = self.convolution((self.embedding(ids) + self.positions).mT).mean(dim=2)
        x = self.hidden(x)
        return self.head(x * self.score(x))


HIDDEN = ["convolution.weight", "hidden.0.weight", "hidden.2.weight"]


def grouped(network, optimizer):
    """The names of the parameters by what trains them."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {
        group["method"]: [names[id(p)] for p in group["params"]] for group in optimizer.param_groups
    }


def divided(network, **settings):
    optimizer = Muon(network.parameters(), **settings)
    optimizer.divide(network)
    return optimizer


def test_hidden_weights_get_muon_and_nothing_else():
    network = Network()
    groups = grouped(network, divided(network))
    assert groups["muon"] == HIDDEN
    assert sorted(groups["adamw"]) == sorted(
        name for name, _ in network.named_parameters() if name not in HIDDEN
    )

    # A weight that an embedding shares is not hidden
    network.tied = nn.Linear(8, 11)
    network.tied.weight = network.embedding.weight
    network.last = nn.Linear(4, 3)
    assert grouped(network, divided(network))["muon"] == [*HIDDEN, "head.weight"]


def test_it_is_torchs_muon_for_matrices_and_torchs_optimizer_for_the_rest(monkeypatch):
    # Both with ours, in float32: in bfloat16, as torch has it, the smallest singular values are
    # noise.
    monkeypatch.setattr("litlab.optim.muon.has_fast_bfloat16", lambda device: False)
    monkeypatch.setattr(
        "torch.optim._muon._zeropower_via_newtonschulz",
        lambda update, factors, steps, eps: orthogonalise(update, steps),
    )
    ours, theirs = Network(), Network()
    for network in (ours, theirs):
        network.convolution.requires_grad_(False)  # which torch's does not take
    mine = divided(ours, lr=0.01, momentum=0.8)
    hidden = [p for name, p in theirs.named_parameters() if name in HIDDEN[1:]]
    left = [p for name, p in theirs.named_parameters() if name not in HIDDEN]
    muon = torch.optim.Muon(
        hidden, lr=0.01, momentum=0.8, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    pairs = (ours, [mine]), (theirs, [muon, torch.optim.AdamW(left, lr=0.01, weight_decay=0.1)])
    for batch in torch.randint(11, (4, 7, 5), generator=torch.Generator().manual_seed(1)):
        for network, optimizers in pairs:
            network.zero_grad()
            nn.functional.cross_entropy(network(batch), batch[:, 0] % 3).backward()
            for optimizer in optimizers:
                optimizer.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    assert not torch.equal(ours.head.weight, Network().head.weight)


@pytest.mark.parametrize("shape", [(16, 40), (40, 16)])
def test_singular_values_come_near_one_and_directions_stay(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    found = orthogonalise(matrix).float()
    values = torch.linalg.svdvals(found)
    assert 0.5 < values.min() <= values.max() < 1.4
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    assert nn.functional.cosine_similarity(found.flatten(), (u @ v).flatten(), dim=0) > 0.97


def test_a_model_divides_it_and_rules_and_schedules_keep_the_ratios():
    """Of an ensemble, the last layer of each member is left out."""
    rules = ParamGroups([GroupRule("network.members.*.hidden.0", lr_scale=0.5, weight_decay=0.0)])
    settings = {"num_classes": 3, "members": 2, "optimizer": partial(Muon, lr=0.01, rest_lr=0.03)}
    model = Classifier(lambda: Network(), param_groups=rules, **settings)
    optimizer = model.new_optimizer()
    groups = {
        (g["method"], round(g["lr"], 6), g["weight_decay"]): len(g["params"])
        for g in optimizer.param_groups
    }
    rest = {("adamw", 0.03, 0.1): 20, ("adamw", 0.015, 0.0): 2}
    assert groups == {("muon", 0.01, 0.1): 4, ("muon", 0.005, 0.0): 2, **rest}
    Schedule(OneCycleLR, "step").configure(optimizer, length=10)
    peaks = [group["max_lr"] for group in optimizer.param_groups]
    assert peaks == pytest.approx([0.03, 0.015, 0.01, 0.005])
    model.lr = 0.1  # what a finder sets
    rates = sorted(group["lr"] for group in model.new_optimizer().param_groups)
    assert rates == pytest.approx([0.05, 0.1, 0.15, 0.3])


def test_what_it_refuses():
    lone = Classifier(nn.Linear(4, 3), num_classes=3, optimizer=Muon)
    with pytest.raises(
        UserError, match=r"^model.optimizer: Muon finds no complete .*trainer.strategy"
    ):
        lone.new_optimizer()
