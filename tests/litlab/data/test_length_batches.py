import numpy as np
import pytest
import torch

from litlab.data.length_batches import LengthBatches

LENGTHS = np.random.default_rng(0).lognormal(4, 0.7, 1000).astype(np.int64) + 1


def share(lengths, batch_size, world_size=1, epoch=0, **options):
    """For each process the list of its batches."""
    result = []
    for rank in range(world_size):
        sampler = LengthBatches(lengths, batch_size, rank=rank, world_size=world_size, **options)
        sampler.set_epoch(epoch)
        result.append(list(sampler))
        assert len(result[-1]) == len(sampler) == len(result[0])
        assert all(map(len, result[-1]))
    return result


def join(shares):
    return torch.cat([batch for batches in shares for batch in batches])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_takes_each_sample_once_from_long_to_short(world_size):
    for size in [*range(world_size, 30), 100]:
        taken = share(LENGTHS[:size], 4, world_size, train=False, seed=size, epoch=size)
        assert join(taken).sort().values.tolist() == list(range(size))
        for batches in taken:
            assert (np.diff(LENGTHS[torch.cat(batches).numpy()]) <= 0).all()
            assert max(map(len, batches)) <= 4 + (world_size > 1)


def test_training_batches_are_full_and_random_samples_are_left_out():
    left_out = []
    for epoch in range(30):
        batches = share(LENGTHS[:101], 10, train=True, epoch=epoch)[0]
        assert {len(batch) for batch in batches} == {10}
        left_out.append(set(range(101)) - set(torch.cat(batches).tolist()))
    assert {len(missing) for missing in left_out} == {1}
    assert len(set.union(*left_out)) > 15  # not always the longest


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_without_drop_last_all_samples_come(world_size):
    for size in (3, 5, 24, 100, 102, 107):
        taken = share(LENGTHS[:size], 8, world_size, train=True, drop_last=False)
        samples = join(taken)
        assert len(samples) == len(samples.unique()) > size - world_size
        assert max(len(batch) for batches in taken for batch in batches) <= 8


def test_training_pads_little_in_random_order():
    batches = share(LENGTHS, 16, train=True)[0]
    longest = np.array([LENGTHS[batch.numpy()].max() for batch in batches])
    assert 16 * longest.sum() < 1.1 * LENGTHS[torch.cat(batches).numpy()].sum()
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.3


def test_order_is_a_function_of_seed_and_epoch():
    orders = {
        (seed, epoch): tuple(join(share(LENGTHS[:64], 8, train=True, seed=seed, epoch=epoch)).tolist())
        for seed in range(2)
        for epoch in range(2)
    }
    assert len(set(orders.values())) == 4
    repeated = share(LENGTHS[:64], 8, train=True, seed=1, epoch=1, repeat=True)
    assert tuple(join(repeated).tolist()) == orders[1, 0]


def test_processes_share_a_step_of_equal_lengths():
    one = share(LENGTHS, 8, train=True, seed=3)[0]
    for whole, *parts in zip(one, *share(LENGTHS, 4, train=True, seed=3, world_size=2), strict=True):
        assert sorted(whole.tolist()) == sorted(torch.cat(parts).tolist())
        longer, shorter = (LENGTHS[part.numpy()].max() for part in parts)
        assert shorter > 0.6 * longer or longer > 250
