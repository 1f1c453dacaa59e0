"""Which samples make up which batch, on any number of processes: in random order, by length, shard
after shard.
"""

from functools import partial

import numpy as np
import pytest
import torch

from litlab.data.images.shards import ShardBatches
from litlab.data.sampler import EpochBatches, LengthBatches
from tests.litlab.data.conftest import refusal

LENGTHS = np.random.default_rng(0).integers(5, 500, 9001)


def by_length(size, batch_size, **options):
    return LengthBatches(LENGTHS[:size], batch_size, **options)


def in_shards(size, batch_size, **options):
    """Shards of 5 samples; the last has what is left."""
    shards = [5] * (size // 5) + [size % 5] * (size % 5 > 0)
    return ShardBatches(shards, batch_size, 2, **options)


def share(make, size, batch_size, world_size=1, epoch=0, **options):
    """For each process the list of its batches."""
    ranks = []
    for rank in range(world_size):
        sampler = make(size, batch_size, rank=rank, world_size=world_size, **options)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler) == len(ranks[0])
    return ranks


def join(ranks):
    return torch.cat([batch for rank in ranks for batch in rank])


def count(ranks):
    return [[len(batch) for batch in rank] for rank in ranks]


@pytest.mark.parametrize("make", [EpochBatches, by_length, in_shards])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_evaluation_takes_each_sample_once_in_as_many_batches_everywhere(make, world_size):
    for size in (5, 6, 17, 26, 39):
        for batch_size in (1, 3, 100):
            ranks = share(make, size, batch_size, world_size, epoch=1)
            assert join(ranks).sort().values.tolist() == list(range(size))
            lengths = np.concatenate(count(ranks))
            assert 1 <= min(lengths) <= max(lengths) <= batch_size + (world_size > 1)
            if make is by_length:
                assert all((np.diff(LENGTHS[torch.cat(rank).numpy()]) <= 0).all() for rank in ranks)
            else:
                assert join(ranks).tolist() == list(range(size))
    assert set(count(share(make, 10_000, 512))[0]) == {500} or make is by_length


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("size", [3, 7, 24, 26, 100])
def test_training_never_repeats_a_sample_and_drops_the_rest_only_if_told(
    size, world_size, drop_last
):
    whole, rest = divmod(size, 8 * world_size)
    last = [rest // world_size] if rest >= world_size and (not drop_last or not whole) else []
    plain, alike, sharded = (
        share(make, size, 8, world_size, train=True, drop_last=drop_last)
        for make in (EpochBatches, by_length, in_shards)
    )
    # The gradients of all processes count alike
    assert count(plain) == [[8] * whole + last] * world_size
    if drop_last:
        assert count(alike) == count(plain)
    else:
        assert len(join(alike)) > size - world_size
        assert max(map(max, count(alike))) <= 8
    for ranks in (plain, alike, sharded):
        assert len(join(ranks).unique()) == len(join(ranks))
    assert len(join(sharded)) == size


@pytest.mark.parametrize("make", [EpochBatches, by_length, in_shards])
def test_order_is_a_function_of_seed_and_epoch(make):
    def order(**options):
        return join(share(make, 64, 8, train=True, **options)).tolist()

    state = torch.get_rng_state()
    assert order(seed=1, epoch=2) == order(seed=1, epoch=2)
    assert torch.get_rng_state().equal(state), "the global generator is left alone"
    assert sorted(order(seed=1)) == list(range(64))
    assert len({tuple(order(seed=s, epoch=e)) for s in range(4) for e in range(4)}) == 16
    assert order(seed=1, epoch=5, repeat=True) == order(seed=1)


@pytest.mark.parametrize(("make", "ranks"), [(EpochBatches, 2), (EpochBatches, 3), (by_length, 2)])
def test_global_batches_do_not_depend_on_the_number_of_processes(make, ranks):
    shares = partial(share, make, 66, train=True, seed=3, drop_last=ranks == 2)
    one, several = shares(12)[0], shares(12 // ranks, ranks)
    assert len(one) == (5 if ranks == 2 else 6)
    for whole, *parts in zip(one, *several, strict=True):
        assert {*whole.tolist()} == {*torch.cat(parts).tolist()}


def test_fewer_samples_than_processes_is_an_error():
    message = refusal(EpochBatches, 2, 4, train=False, world_size=3, name="test images")
    assert message.startswith("test images: 2 samples can't be shared by 3 processes")


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("make", [EpochBatches, by_length, in_shards])
def test_an_interrupted_epoch_goes_on_with_what_is_left(make, drop_last):
    whole, sampler = (make(20, 3, train=True, drop_last=drop_last) for _ in range(2))
    whole.set_epoch(2)
    sampler.go_on_from(2, 4)
    iter(sampler)  # what loaders with workers make twice, before the epoch begins
    sampler.set_epoch(2)  # as Lightning does at the start of the epoch
    assert [batch.tolist() for batch in sampler] == [batch.tolist() for batch in whole][4:]
    for each in (whole, sampler):
        each.set_epoch(3)
    assert [batch.tolist() for batch in sampler] == [batch.tolist() for batch in whole]


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_samples_of_a_step_are_of_about_the_same_length_and_steps_in_random_order(train, ranks):
    taken = share(by_length, 9001, 10, ranks, train=train)
    # (ranks, batches)
    longest = np.array([[LENGTHS[batch.numpy()].max() for batch in rank] for rank in taken])
    assert (longest * count(taken)).sum() < 1.1 * LENGTHS[join(taken).numpy()].sum()
    assert np.median(np.ptp(longest, axis=0) / longest.max(axis=0)) < 0.1
    assert (abs(np.corrcoef(longest[0, :-1], longest[0, 1:])[0, 1]) < 0.2) == train


def test_a_process_reads_its_own_shards_and_few_at_a_time():
    ranks = share(in_shards, 60, 5, 3, train=True)
    read = [[{*(batch // 5).tolist()} for batch in rank] for rank in ranks]
    assert [len(set().union(*rank)) for rank in read] == [4, 4, 4]
    together = {len(shards) for rank in read for shards in rank}
    assert {2} <= together <= {1, 2}, "two are shuffled together"
