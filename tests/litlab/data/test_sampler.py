import numpy as np
import pytest
import torch

from litlab.data.length_batches import LengthBatches
from litlab.data.sampler import EpochBatches
from litlab.data.split import partition, stratified
from litlab.errors import UserError

LENGTHS = np.random.default_rng(0).integers(1, 30, 20)


def batches(size, batch_size, world_size=1, epoch=0, **options):
    """For each process the list of its batches."""
    samplers = [EpochBatches(size, batch_size, rank=r, world_size=world_size, **options) for r in range(world_size)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    for sampler in samplers:
        assert len(list(sampler)) == len(sampler)
    return [list(sampler) for sampler in samplers]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 8, 100])
def test_evaluation_takes_each_sample_once_in_as_many_batches_everywhere(world_size, batch_size):
    for size in range(world_size, 40):
        ranks = batches(size, batch_size, world_size, train=False)
        assert torch.cat([batch for rank in ranks for batch in rank]).tolist() == list(range(size))
        assert len({len(rank) for rank in ranks}) == 1
        lengths = [len(batch) for rank in ranks for batch in rank]
        assert min(lengths) >= 1
        assert max(lengths) <= batch_size + (world_size > 1)


def test_evaluation_batches_are_of_equal_size():
    assert {len(batch) for batch in batches(10_000, 512, train=False)[0]} == {500}


@pytest.mark.parametrize(
    ("size", "batch_size", "world_size"), [(100, 8, 1), (100, 8, 3), (7, 8, 1), (7, 8, 2), (16, 8, 2)]
)
def test_training_never_repeats_a_sample_and_never_has_no_batch(size, batch_size, world_size):
    ranks = batches(size, batch_size, world_size, train=True)
    taken = torch.cat([batch for rank in ranks for batch in rank])
    assert len(taken.unique()) == len(taken)
    lengths = {len(batch) for rank in ranks for batch in rank}
    assert len(lengths) == 1  # the incomplete batch is dropped
    assert lengths == {min(batch_size, size // world_size)}
    assert len({len(rank) for rank in ranks}) == 1
    assert len(ranks[0]) == max(1, size // (batch_size * world_size))


def test_order_is_a_function_of_seed_and_epoch():
    def order(**options):
        return torch.cat(batches(64, 8, train=True, **options)[0]).tolist()

    assert order(seed=1, epoch=2) == order(seed=1, epoch=2)
    assert sorted(order(seed=1)) == list(range(64))
    assert len({tuple(order(seed=s, epoch=e)) for s in range(4) for e in range(4)}) == 16


def test_order_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    batches(64, 8, train=True)
    stratified(torch.arange(10) % 2, 4, 0)
    assert torch.rand(1) == expected


def test_global_batches_do_not_depend_on_the_number_of_processes():
    one = batches(64, 8, 1, train=True, seed=3)[0]
    two = batches(64, 4, 2, train=True, seed=3)
    assert [set(batch.tolist()) for batch in one] == [
        set(a.tolist()) | set(b.tolist()) for a, b in zip(*two, strict=True)
    ]


def test_fewer_samples_than_processes_is_an_error():
    with pytest.raises(UserError, match=r"^test images: 2 samples can't be shared by 3 processes; use fewer") as error:
        EpochBatches(2, 4, train=False, world_size=3, name="test images")
    assert "\n" not in str(error.value)


def test_stratified_keeps_the_mix_and_the_last_of_each_class():
    labels = torch.tensor([0] * 500 + [1] * 300 + [2] * 200 + [3])
    left, taken = stratified(labels, 100, seed=0)
    assert len(taken) == 100
    assert torch.cat([left, taken]).sort().values.tolist() == list(range(1001))
    counts = torch.bincount(labels[taken], minlength=4)
    assert ((counts - torch.tensor([50, 30, 20, 0])).abs() <= 1).all()
    assert 3 in labels[left]
    assert (labels[stratified(labels, 1001, seed=0)[0]].sort().values == torch.arange(4)).all()


def test_stratified_is_seeded():
    labels = torch.arange(100) % 3
    assert stratified(labels, 20, 0)[1].equal(stratified(labels, 20, 0)[1])
    assert not stratified(labels, 20, 0)[1].equal(stratified(labels, 20, 1)[1])


def test_partition():
    labels = {"train": torch.arange(100) % 2}
    rows = partition(labels, 0.1, 0.1, seed=0)
    assert {split: len(part) for split, (_, part) in rows.items()} == {"train": 80, "val": 10, "test": 10}
    assert torch.cat([part for _, part in rows.values()]).sort().values.tolist() == list(range(100))
    assert list(partition(labels, 0.0, 0.0, seed=0)) == ["train"]
    rows = partition({"train": labels["train"], "val": torch.arange(6) % 2}, 0.1, 0.0, seed=0)
    assert {split: (origin, len(part)) for split, (origin, part) in rows.items()} == {
        "train": ("train", 100),
        "val": ("val", 6),
    }


@pytest.mark.parametrize(
    "make", [lambda: EpochBatches(20, 3, train=True), lambda: LengthBatches(LENGTHS, 3, train=True)]
)
def test_an_interrupted_epoch_goes_on_with_what_is_left(make):
    whole, sampler = make(), make()
    whole.set_epoch(2)
    sampler.go_on_from(2, 4)
    iter(sampler)  # what loaders with workers make twice, before the epoch begins
    sampler.set_epoch(2)  # as Lightning does at the start of the epoch
    assert [batch.tolist() for batch in sampler] == [batch.tolist() for batch in whole][4:]
    for each in (whole, sampler):
        each.set_epoch(3)
    assert [batch.tolist() for batch in sampler] == [batch.tolist() for batch in whole]
    assert len(sampler) == len(whole)
