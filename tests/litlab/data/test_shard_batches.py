"""The order of samples in shards."""

import numpy as np
import pytest
import torch

from litlab.data.shard_batches import ShardBatches


def batches(shards, batch_size, world_size=1, epoch=0, shuffle_shards=2, **options):
    """For each process the list of its batches."""
    ranks = []
    for rank in range(world_size):
        sampler = ShardBatches(shards, batch_size, shuffle_shards, rank=rank, world_size=world_size, **options)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler) == len(ranks[0])
    return ranks


@pytest.mark.parametrize("shards", [[17], [5, 9, 3], [2, 2, 2, 2, 2, 2, 2, 2, 1]])
@pytest.mark.parametrize("world_size", [1, 2, 5])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("train", [True, False])
def test_every_sample_once_in_as_many_batches_everywhere(shards, world_size, batch_size, train):
    ranks = batches(shards, batch_size, world_size, train=train)
    together = [batch for rank in ranks for batch in rank]
    taken = torch.cat(together).tolist()
    assert sorted(taken) == list(range(17))
    assert (taken == list(range(17))) != train
    lengths = [len(batch) for batch in together]
    assert 1 <= min(lengths) <= max(lengths) <= batch_size + (world_size > 1)


def test_shards_come_in_random_order_a_process_reads_its_own_and_few_at_a_time():
    orders = set()
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 1)):
        ranks = batches([10] * 12, 10, 3, train=True, seed=seed, epoch=epoch)
        read = [[set((batch // 10).tolist()) for batch in rank] for rank in ranks]
        shards = [set().union(*rank) for rank in read]
        assert [len(own) for own in shards] == [4, 4, 4]
        assert {len(some) for rank in read for some in rank} <= {1, 2}
        assert any(len(some) == 2 for rank in read for some in rank), "two are shuffled together"
        orders.add(tuple(torch.cat(ranks[0]).tolist()))
    assert len(orders) == 4


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ranks", [1, 3])
def test_samples_of_a_batch_are_of_about_the_same_length_and_those_of_a_step_too(train, ranks):
    lengths = np.random.default_rng(0).integers(5, 500, 9001)
    taken = batches([1000] * 9 + [1], 10, ranks, shuffle_shards=3, lengths=lengths, train=train)
    together = [batch for rank in taken for batch in rank]
    assert torch.cat(together).sort().values.tolist() == list(range(9001))
    assert sum(int(lengths[batch].max()) * len(batch) for batch in together) < 1.1 * lengths.sum()
    longest = np.array([[lengths[batch].max() for batch in rank] for rank in taken])  # (ranks, batches)
    assert np.ptp(longest, axis=0).mean() < 40
    assert (abs(np.corrcoef(longest[0, :-1], longest[0, 1:])[0, 1]) < 0.2) == train, "in random order"
