"""The order of samples in shards."""

import pytest
import torch

from litlab.data.shard_batches import ShardBatches


def batches(shards, batch_size, world_size=1, epoch=0, shuffle_shards=2, **options):
    """For each process the list of its batches."""
    samplers = [
        ShardBatches(shards, batch_size, shuffle_shards, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    assert all(len(list(sampler)) == len(sampler) for sampler in samplers)
    return [list(sampler) for sampler in samplers]


@pytest.mark.parametrize("shards", [[17], [5, 9, 3], [1] * 17, [2, 2, 2, 2, 2, 2, 2, 2, 1]])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("train", [True, False])
def test_every_sample_once_in_as_many_batches_everywhere(shards, world_size, batch_size, train):
    ranks = batches(shards, batch_size, world_size, train=train)
    taken = torch.cat([batch for rank in ranks for batch in rank])
    assert sorted(taken.tolist()) == list(range(17))
    assert train or taken.tolist() == list(range(17))
    assert len({len(rank) for rank in ranks}) == 1
    lengths = [len(batch) for rank in ranks for batch in rank]
    assert min(lengths) >= 1
    assert max(lengths) <= batch_size + (world_size > 1)


def test_batches_of_an_epoch_are_even():
    lengths = [len(batch) for batch in batches([100] * 11, 256, train=True)[0]]
    assert lengths == [220] * 5


def test_the_order_is_another_in_every_epoch_and_with_every_seed():
    orders = {
        tuple(torch.cat(batches([8] * 8, 8, train=True, seed=seed, epoch=epoch)[0]).tolist())
        for seed in range(4)
        for epoch in range(4)
    }
    assert len(orders) == 16
    again = torch.cat(batches([8] * 8, 8, train=True, seed=3, epoch=3)[0]).tolist()
    assert tuple(again) in orders


def test_a_process_reads_its_own_shards_and_few_at_a_time():
    ranks = batches([10] * 12, 10, world_size=3, train=True, shuffle_shards=2)
    read = [[set((batch // 10).tolist()) for batch in rank] for rank in ranks]
    shards = [set().union(*rank) for rank in read]
    assert [len(own) for own in shards] == [4, 4, 4]
    assert len(set().union(*shards)) == 12
    assert all(len(some) <= 2 for rank in read for some in rank)
    assert any(len(some) == 2 for rank in read for some in rank), "two are shuffled together"


def test_a_resumed_epoch_goes_on():
    whole = ShardBatches([7, 8, 9], 4, 2, train=True, seed=5)
    whole.set_epoch(3)
    rest = ShardBatches([7, 8, 9], 4, 2, train=True, seed=5)
    rest.go_on_from(3, 2)
    assert all(map(torch.equal, rest, list(whole)[2:]))
