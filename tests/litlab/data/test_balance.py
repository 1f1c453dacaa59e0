"""Class balance: what is drawn, on any number of ranks, and the weights of the loss."""

import numpy as np
import pytest
import torch

from litlab.data.classes import draw_samples, weigh_classes, weigh_for_loss
from litlab.data.length_batches import LengthBatches
from litlab.data.sampler import EpochBatches
from tests.litlab.data.conftest import prepared, refusal
from tests.litlab.data.toys import Numbers

NAMES = ["many", "some", "few"]
COUNTS = [90, 9, 1]
LABELS = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))[torch.randperm(100, generator=torch.manual_seed(0))]


def draw(generator, balance="even"):
    return draw_samples(weigh_classes(LABELS, NAMES, balance, "data.balance")[LABELS], generator)


@pytest.mark.parametrize(("balance", "shares"), [("even", [1 / 3] * 3), ("sqrt", [0.703, 0.222, 0.074])])
def test_each_class_has_its_share(balance, shares):
    epochs = [draw(torch.Generator().manual_seed(epoch), balance) for epoch in range(100)]
    counts = torch.bincount(LABELS[torch.cat(epochs) % 100]) / 10_000
    assert counts.tolist() == pytest.approx(shares, abs=0.02)
    assert not epochs[0].equal(epochs[1])
    assert len(epochs[0].unique()) == 100, "each draw has a number of its own"
    assert draw(torch.Generator().manual_seed(3), balance).equal(epochs[3])


LENGTHS = np.random.default_rng(0).integers(1, 30, 100)


@pytest.mark.parametrize(
    ("kind", "samples", "world_size"), [(EpochBatches, 100, 1), (EpochBatches, 100, 3), (LengthBatches, LENGTHS, 2)]
)
def test_ranks_share_the_draws(kind, samples, world_size):
    ranks = [
        kind(samples, 4, train=True, seed=3, rank=rank, world_size=world_size, draw=draw) for rank in range(world_size)
    ]
    for one in ranks:
        one.set_epoch(2)
    taken = torch.cat([batch for one in ranks for batch in one])
    assert len(taken.unique()) == len(taken) == 100 // (4 * world_size) * 4 * world_size
    assert set(taken.tolist()) <= set(draw(ranks[0].make_generator()).tolist())


class Data:
    balance = None
    class_names = NAMES

    def labels(self, split):
        assert split == "train"
        return LABELS


@pytest.mark.parametrize(("balance", "power"), [("even", 1.0), ("sqrt", 0.5)])
def test_weights_make_up_for_the_counts(balance, power):
    weights = weigh_for_loss(Data(), balance)
    assert float(weights[LABELS].mean()) == pytest.approx(1, rel=1e-6)
    assert float(weights[2] / weights[0]) == pytest.approx(90**power, rel=1e-5)


def test_batches_are_drawn_by_class():
    data = Numbers(batch_size=8)
    data.balance = "even"
    labels = (torch.cat([*data.batches("train", 0), *data.batches("train", 1)]) % 5 > 0).float()
    assert float(labels.mean()) == pytest.approx(0.5, abs=0.15)
    data.labels = lambda split: None
    assert refusal(prepared, data) == "data.balance: Numbers has no classes to balance; leave it out"


def test_what_can_not_be_balanced():
    message = refusal(weigh_classes, torch.tensor([0, 1, 1]), NAMES, "even", "data.balance")
    assert message.startswith("data.balance: class 'few' has no training samples")
    data = Data()
    data.balance = "even"
    assert refusal(weigh_for_loss, data, "even").startswith("model.class_weights: data.balance evens out the classes")
    assert refusal(weigh_for_loss, object(), "even").startswith("model.class_weights: object has no labels() to count")
