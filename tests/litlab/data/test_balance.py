"""Class balance: what is drawn, on any number of ranks, and the weights of the loss."""

from types import SimpleNamespace

import pytest
import torch

from litlab.util.classes import weigh_for_loss
from tests.litlab.data.conftest import a_rank, prepared, refusal
from tests.litlab.data.toys import Numbers

COUNTS = torch.tensor([90, 9, 1])
LABELS = torch.arange(3).repeat_interleave(COUNTS)[
    torch.randperm(100, generator=torch.manual_seed(0))
]


class Classes(Numbers):
    """Samples of three classes, in place of two."""

    balance = "even"

    def labels(self, split):
        return LABELS[: self.sizes[split]]


def draw(epochs, balance="even", rank=0, ranks=1):
    """What a process draws in some epochs, as the numbers of the draws."""
    data = Classes(batch_size=8, seed=3)
    data.balance, data.trainer = balance, a_rank(rank, ranks)
    data.setup("fit")
    sampler = data.train_dataloader().sampler
    drawn = []
    for epoch in epochs:
        sampler.set_epoch(epoch)
        drawn.append(torch.cat(list(sampler)))
    return drawn


@pytest.mark.parametrize(("balance", "power"), [("even", -1), ("sqrt", -0.5)])
def test_each_class_has_its_share(balance, power):
    drawn = draw(range(100), balance)
    shares = LABELS[:80].bincount() ** (1 + power)
    found = LABELS[torch.cat(drawn) % 80].bincount()
    torch.testing.assert_close(found / 8000, shares / shares.sum(), atol=0.02, rtol=0)
    assert not drawn[0].equal(drawn[1])
    assert len(drawn[0].unique()) == 80, "each draw has a number of its own"
    assert draw([3], balance)[0].equal(drawn[3])


def test_ranks_share_the_draws():
    [alone], *parts = draw([2]), *(draw([2], rank=rank, ranks=2)[0] for rank in (0, 1))
    assert torch.cat(parts).sort().values.equal(alone.sort().values)


@pytest.mark.parametrize(("balance", "power"), [("even", 1.0), ("sqrt", 0.5)])
def test_weights_make_up_for_the_counts(balance, power):
    data = SimpleNamespace(labels=lambda split: LABELS, class_names=["many", "some", "few"])
    weights = weigh_for_loss(data, balance)
    assert float(weights[LABELS].mean()) == pytest.approx(1, rel=1e-6)
    assert float(weights[2] / weights[0]) == pytest.approx(90**power, rel=1e-5)
    line = refusal(weigh_for_loss, object(), "even")
    assert line.startswith("model.class_weights: object has no labels() to count")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "data.balance: Classes has no classes to balance"),
        (torch.zeros(80).long(), "data.balance: class 'frequent' has no training samples"),
    ],
)
def test_what_can_not_be_balanced(labels, message):
    data = Classes()
    data.labels = lambda split: labels
    assert refusal(prepared, data).startswith(message)
