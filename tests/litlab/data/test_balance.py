"""Class balance: what is drawn, on any number of ranks, and the weights of the loss."""

import numpy as np
import pytest
import torch
from litlab.data.balance import BalancedDraw, shared_out
from litlab.data.class_counts import training_weights
from litlab.data.text.memory import StoredTexts
from torch.nn import functional as F

from litlab.data import TabularData, TextData
from litlab.data.images.memory import StoredImages
from litlab.data.length_batches import LengthBatches
from litlab.data.sampler import EpochBatches
from litlab.data.tables.memory import EncodedRows
from litlab.errors import UserError
from litlab.tasks import Classifier

NAMES = ["many", "some", "few"]
COUNTS = [90, 9, 1]
LABELS = torch.arange(3).repeat_interleave(torch.tensor(COUNTS))[torch.randperm(100, generator=torch.manual_seed(0))]


def drawn(balance, epoch=0):
    return BalancedDraw(LABELS, balance, NAMES)(torch.Generator().manual_seed(epoch))


@pytest.mark.parametrize(("balance", "shares"), [("even", [34, 33, 33]), ("sqrt", [70, 22, 8])])
def test_each_class_has_its_share_and_no_sample_comes_twice_more_often(balance, shares):
    numbers = drawn(balance)
    samples = numbers % 100
    assert torch.bincount(LABELS[samples], minlength=3).tolist() == shares
    assert len(numbers.unique()) == 100, "each draw has a number of its own"
    times = torch.bincount(samples, minlength=100)
    for label in range(3):
        of_class = times[label == LABELS]
        assert int(of_class.max() - of_class.min()) <= 1


def test_what_is_left_out_and_the_order_change_with_the_epoch_alone():
    assert torch.equal(drawn("even", 3), drawn("even", 3))
    epochs = [drawn("even", epoch) % 100 for epoch in range(12)]
    assert len({tuple(order.tolist()) for order in epochs}) == 12
    assert len(torch.cat(epochs).unique()) > 95, "over some epochs nearly all samples come"


def test_parts_add_up():
    for total in range(1, 50):
        assert int(shared_out(total, torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)).sum()) == total


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["batches", "lengths"])
def test_ranks_share_the_draws_and_a_resumed_epoch_goes_on(kind, world_size):
    draw = BalancedDraw(LABELS, "even", NAMES)

    def sampler(rank):
        options = {"train": True, "seed": 3, "rank": rank, "world_size": world_size, "draw": draw}
        if kind == "batches":
            return EpochBatches(100, 4, **options)
        return LengthBatches(np.random.default_rng(0).integers(1, 30, 100), 4, **options)

    ranks = [sampler(rank) for rank in range(world_size)]
    for one in ranks:
        one.set_epoch(2)
    taken = torch.cat([batch for one in ranks for batch in one])
    expected = draw(torch.Generator().manual_seed(ranks[0].epoch_seed))
    assert len(taken.unique()) == len(taken) == 100 // (4 * world_size) * 4 * world_size
    assert set(taken.tolist()) <= set(expected.tolist())
    again = sampler(0)
    again.go_on_from(2, 3)
    assert all(map(torch.equal, again, list(ranks[0])[3:]))


def test_numbers_of_further_draws_are_those_of_the_samples():
    index = torch.tensor([1, 0, 4, 6])  # of three samples
    images = StoredImages(torch.arange(3, dtype=torch.uint8).view(3, 1, 1, 1), torch.tensor([5, 6, 7]))[index]
    assert images["image"].flatten().tolist() == [1, 0, 1, 0]
    assert images["label"].tolist() == [6, 5, 6, 5]
    assert images["index"].tolist() == [1, 0, 4, 6], "each draw is augmented in a way of its own"
    rows = EncodedRows(torch.arange(3.0)[:, None], torch.empty(3, 0, dtype=torch.int64), torch.tensor([5, 6, 7]))
    inputs, target = rows[index]
    assert inputs["numbers"].flatten().tolist() == [1, 0, 1, 0]
    assert target.tolist() == [6, 5, 6, 5]
    texts = StoredTexts(np.arange(3, dtype=np.int32), np.arange(4), np.array([5, 6, 7]))
    inputs, target = texts[index]
    assert inputs["ids"].flatten().tolist() == [1, 0, 1, 0]
    assert target.tolist() == [6, 5, 6, 5]


def test_a_text_that_comes_twice_is_cropped_in_two_ways():
    texts = StoredTexts(np.arange(1000, dtype=np.int32), np.array([0, 1000]), np.array([0]), max_tokens=2)
    texts.crop_at_random(LengthBatches(texts.lengths, 4, train=True))
    inputs, _ = texts[torch.arange(8)]
    assert len(inputs["ids"][:, 0].unique()) > 4


class Data:
    balance = None
    class_names = NAMES

    def labels(self, split):
        assert split == "train"
        return LABELS


@pytest.mark.parametrize(("balance", "power"), [("even", 1.0), ("sqrt", 0.5)])
def test_weights_make_up_for_the_counts(balance, power):
    weights = training_weights(Data(), balance)
    assert float(weights[LABELS].mean()) == pytest.approx(1, rel=1e-6)
    assert float(weights[2] / weights[0]) == pytest.approx(90**power, rel=1e-5)


def test_the_weighted_loss_is_that_of_its_samples():
    model = Classifier(torch.nn.Identity(), num_classes=3, class_weights="even", label_smoothing=0.1)
    model.class_weights.copy_(torch.tensor([0.5, 1.0, 4.0]))
    logits, labels = torch.randn(6, 3), torch.tensor([0, 0, 0, 1, 2, 2])
    one_by_one = [
        float(w) * F.cross_entropy(logit, label, label_smoothing=0.1)
        for logit, label, w in zip(logits, labels, [0.5, 0.5, 0.5, 1, 4, 4], strict=True)
    ]
    assert float(model.batch_loss((logits, labels))) == pytest.approx(float(sum(one_by_one)) / 6, rel=1e-5)
    assert model.expected_loss((logits, labels)) == pytest.approx(np.log(3) * 10.5 / 6)


def test_texts_and_rows_are_drawn_by_their_classes(tmp_path):
    path = tmp_path / "texts.csv"
    lines = [
        f"{'rare' if number % 10 == 0 else 'frequent'},word{number} is here,{number % 7}\n" for number in range(100)
    ]
    path.write_text("label,text,size\n" + "".join(lines))
    texts = TextData("csv", str(path), batch_size=8, balance="even", cache_dir=str(tmp_path / "cache"))
    rows = TabularData("csv", str(path), target="label", ignore=["text"], batch_size=8, balance="even")
    for data in (texts, rows):
        labels = torch.cat([labels for _, labels in data.batches("train")])
        counts = torch.bincount(data.labels("train"))
        assert int(counts.max()) > 1.5 * int(counts.min())
        assert torch.bincount(labels).tolist() == pytest.approx([len(labels) / 2] * 2, abs=8)


def test_what_is_not_drawn_by_classes(tmp_path):
    line = "data.balance: even is not valid; leave it out, or data.tokens_per_batch"
    with pytest.raises(UserError, match=line):
        TextData("generated", balance="even", tokens_per_batch=500, cache_dir=str(tmp_path))
    spend = TabularData("generated", target="spend", balance="even")
    with pytest.raises(UserError, match=r"data\.balance: the target is a number, not a class; leave it out"):
        spend.setup("fit")


def test_what_cannot_be_balanced():
    with pytest.raises(UserError, match=r"data\.balance: the data has a single class; leave it out"):
        BalancedDraw(torch.zeros(4, dtype=torch.int64), "even", ["one"])
    with pytest.raises(UserError, match=r"data\.balance: class 'few' has no training samples; add some"):
        BalancedDraw(torch.tensor([0, 1, 1]), "even", NAMES)
    data = Data()
    data.balance = "even"
    with pytest.raises(UserError, match=r"model\.class_weights: data\.balance evens out the classes already"):
        training_weights(data, "even")
    with pytest.raises(UserError, match=r"model.class_weights: object has no labels\(\) to count; leave"):
        training_weights(object(), "even")
