"""Which samples make up which batch, on any number of processes; and which are held out."""

import numpy as np
import pytest
import torch

from litlab.data.length_batches import LengthBatches
from litlab.data.sampler import EpochBatches
from tests.litlab.data.conftest import refusal

LENGTHS = np.random.default_rng(0).integers(1, 30, 20)


def batches(size, batch_size, world_size=1, epoch=0, **options):
    """For each process the list of its batches."""
    samplers = [EpochBatches(size, batch_size, rank=r, world_size=world_size, **options) for r in range(world_size)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
        assert len(list(sampler)) == len(sampler)
    return [list(sampler) for sampler in samplers]


@pytest.mark.parametrize("world_size", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_evaluation_takes_each_sample_once_in_as_many_batches_everywhere(world_size, batch_size):
    for size in range(world_size, 40):
        ranks = batches(size, batch_size, world_size, train=False)
        assert torch.cat([batch for rank in ranks for batch in rank]).tolist() == list(range(size))
        assert len({len(rank) for rank in ranks}) == 1
        lengths = [len(batch) for rank in ranks for batch in rank]
        assert 1 <= min(lengths) <= max(lengths) <= batch_size + (world_size > 1)
    assert {len(batch) for batch in batches(10_000, 512, train=False)[0]} == {500}


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("size", [3, 7, 24, 26, 100])
def test_training_never_repeats_a_sample_and_drops_the_rest_only_if_told(size, world_size, drop_last):
    ranks = batches(size, 8, world_size, train=True, drop_last=drop_last)
    taken = torch.cat([batch for rank in ranks for batch in rank])
    assert len(taken.unique()) == len(taken)
    whole, rest = divmod(size, 8 * world_size)
    last = [rest // world_size] if rest >= world_size and (not drop_last or not whole) else []
    for rank in ranks:  # the gradients of all processes count alike
        assert [len(batch) for batch in rank] == [8] * whole + last


def test_order_is_a_function_of_seed_and_epoch():
    def order(**options):
        return torch.cat(batches(64, 8, train=True, **options)[0]).tolist()

    state = torch.get_rng_state()
    assert order(seed=1, epoch=2) == order(seed=1, epoch=2)
    assert torch.get_rng_state().equal(state), "the global generator is left alone"
    assert sorted(order(seed=1)) == list(range(64))
    assert len({tuple(order(seed=s, epoch=e)) for s in range(4) for e in range(4)}) == 16
    assert order(seed=1, epoch=5, repeat=True) == order(seed=1)


@pytest.mark.parametrize(("ranks", "batch_size", "drop_last"), [(2, 6, True), (3, 4, False)])
def test_global_batches_do_not_depend_on_the_number_of_processes(ranks, batch_size, drop_last):
    options = {"train": True, "seed": 3, "drop_last": drop_last}
    one, several = batches(66, 12, 1, **options)[0], batches(66, batch_size, ranks, **options)
    assert len(one) == (5 if drop_last else 6)
    assert [set(batch.tolist()) for batch in one] == [
        set(torch.cat(parts).tolist()) for parts in zip(*several, strict=True)
    ]


def test_fewer_samples_than_processes_is_an_error():
    message = refusal(EpochBatches, 2, 4, train=False, world_size=3, name="test images")
    assert message.startswith("test images: 2 samples can't be shared by 3 processes; use fewer")


@pytest.mark.parametrize(
    "make",
    [
        lambda: EpochBatches(20, 3, train=True),
        lambda: EpochBatches(20, 3, train=True, drop_last=False),
        lambda: LengthBatches(LENGTHS, 3, train=True),
    ],
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
