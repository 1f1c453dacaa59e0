"""Class balance: what is drawn, on any number of ranks, and the weights of the loss."""

import numpy as np
import pandas as pd
import pytest
import torch

from litlab.data import TabularData
from litlab.util.classes import weigh_for_loss
from tests.litlab.data.conftest import a_rank, prepared, refusal

LABELS = torch.from_numpy(np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [80, 15, 1])))


def make(balance="even"):
    """Rows of three classes, all to train on."""
    frame = pd.DataFrame({"kind": LABELS, "size": np.arange(96) % 7})
    options = {"val_fraction": 0.0, "test_fraction": 0.0, "batch_size": 8, "seed": 3}
    return TabularData(path=frame, target="kind", balance=balance, **options)


def draw(epochs, balance="even", rank=0, ranks=1):
    """What a process draws in some epochs, as the numbers of the draws."""
    data = make(balance)
    data.trainer = a_rank(rank, ranks)
    data.setup("fit")
    sampler = data.train_dataloader().sampler
    drawn = []
    for epoch in epochs:
        sampler.set_epoch(epoch)
        drawn.append(torch.cat([*sampler]))
    return drawn


@pytest.mark.parametrize(("balance", "power"), [("even", -1), ("sqrt", -0.5)])
def test_each_class_has_its_share(balance, power):
    drawn = draw(range(100), balance)
    shares = LABELS.bincount() ** (1 + power)
    found = LABELS[torch.cat(drawn) % 96].bincount()
    torch.testing.assert_close(found / 9600, shares / shares.sum(), atol=0.02, rtol=0)
    assert not drawn[0].equal(drawn[1])
    assert len(drawn[0].unique()) == 96, "each draw has a number of its own"
    assert draw([3], balance)[0].equal(drawn[3])


def test_ranks_share_the_draws():
    [alone], *parts = draw([2]), *(draw([2], rank=rank, ranks=2)[0] for rank in (0, 1))
    assert torch.cat(parts).sort().values.equal(alone.sort().values)


@pytest.mark.parametrize(("balance", "power"), [("even", 1.0), ("sqrt", 0.5)])
def test_weights_make_up_for_the_counts(balance, power):
    weights = weigh_for_loss(prepared(make(balance=None)), balance)
    assert float(weights[LABELS].mean()) == pytest.approx(1, rel=1e-6)
    assert float(weights[2] / weights[0]) == pytest.approx(80**power, rel=1e-5)
    line = refusal(weigh_for_loss, object(), "even")
    assert line.startswith("model.class_weights: object has no labels() to count")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "data.balance: TabularData has no classes to balance"),
        (torch.zeros(96).long(), "data.balance: class '1' has no training samples"),
    ],
)
def test_what_can_not_be_balanced(labels, message):
    data = make()
    data.labels = lambda split: labels
    assert refusal(prepared, data).startswith(message)
