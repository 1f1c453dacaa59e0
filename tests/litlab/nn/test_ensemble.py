"""What vmap takes of an ensemble's networks, and what is computed one after the other."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from litlab.callbacks.activation_checkpointing import _blocks
from litlab.errors import UserError
from litlab.nn.ensemble import Ensemble
from litlab.tasks import Classifier

SHAPE = (3, 32, 32)


def test_vmap_is_not_for_all_networks():
    norm = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3072), nn.Linear(3072, 10))
    assert "BatchNorm1d changes its running statistics" in Ensemble([norm, norm]).description
    frozen = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3072, track_running_stats=False), nn.Linear(3072, 10))
    assert Ensemble([frozen, frozen], vectorize=True)(torch.randn(4, *SHAPE)).shape == (2, 4, 10)
    with pytest.raises(UserError, match=r"model\.vectorize: vmap can't take LSTM \(it has no rule for LSTM\); leave"):
        Ensemble([nn.LSTM(3, 4), nn.LSTM(3, 4)], vectorize=True)
    with pytest.raises(UserError, match="differ in their parts"):
        Ensemble([nn.Dropout(0.1), nn.Dropout(0.2)], vectorize=True)
    with pytest.raises(UserError, match="differ in their shapes"):
        Ensemble([Weights(3), Weights(4)], vectorize=True)


class Weights(nn.Module):
    """One vector of weights."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(size))


class Branches(nn.Linear):
    """A branch that depends on the weights."""

    def forward(self, x):
        return super().forward(x) * (2 if self.weight.sum() > 0 else 1)


class Counts(nn.Linear):
    """Changes a buffer in place, or puts another in its place."""

    def __init__(self, in_place: bool) -> None:
        super().__init__(3, 4)
        self.in_place = in_place
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.in_place:
            self.calls.add_(1)
        else:
            self.calls = self.calls + 1
        return super().forward(x)


class Replaced(nn.Linear):
    """Has another forward than its class, as some callbacks make it."""

    def __init__(self) -> None:
        super().__init__(3, 4)
        self.forward = lambda x: F.linear(x, self.weight)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: Branches(3, 4),
            "vmap: It looks like you're attempting to use a Tensor",
        ),
        (lambda: Counts(True), "it changes calls, which would be lost"),
        (lambda: Counts(False), "it changes calls, which would be lost"),
        (Replaced, "a callback has replaced the forward of Replaced"),
    ],
)
def test_what_vmap_refuses_as_it_runs_is_computed_one_by_one(make, reason, monkeypatch, caplog):
    members = [make(), make()]
    x = torch.randn(2, 3)
    expected = torch.stack([member(x) for member in members])
    monkeypatch.setattr(Ensemble, "_refuse", lambda self, *_: None)  # of what it sees when it is made
    asked = Ensemble(members, vectorize=True)
    monkeypatch.undo()
    with pytest.raises(UserError) as refusal:
        asked(x)
    assert str(refusal.value).startswith(f"model.vectorize: vmap can't take {type(members[0]).__name__} ({reason}")
    # On a GPU it is tried where nobody asked for it.
    monkeypatch.setattr(Ensemble, "at_once", property(lambda self: self.obstacle is None))
    left = Ensemble(members)
    left.obstacle = None
    torch.testing.assert_close(left(x), expected)
    assert left.obstacle.startswith(reason)
    assert f"computed one after the other, as vmap can't take them ({reason}" in caplog.text
    if isinstance(members[0], Counts):
        assert members[0].calls == 2, "once by itself, once as a member"


def test_dropout_differs_between_members():
    torch.manual_seed(0)
    both = Ensemble([nn.Sequential(nn.LayerNorm(64), nn.Dropout(0.5)) for _ in range(2)], vectorize=True)
    first, second = both(torch.arange(64.0)[None])
    assert not torch.equal(first, second)


class Block(nn.Module):
    """A layer and an activation, as parts of a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.activation = nn.Linear(3, 3), nn.ReLU()


def test_the_blocks_to_recompute_are_those_within_each_member():
    def network() -> nn.Module:
        return nn.Sequential(Block(), Block(), nn.Linear(3, 4))

    alone, both = (Classifier(network, members=members, num_classes=4) for members in (1, 2))
    assert set(_blocks(alone)) == {"network.0", "network.1"}
    assert set(_blocks(both)) == {f"network.members.{member}.{block}" for member in (0, 1) for block in (0, 1)}
    assert all(both.get_submodule(name) is block for name, block in _blocks(both).items())
