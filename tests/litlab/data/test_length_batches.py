import numpy as np
import pytest
import torch

from litlab.data.length_batches import LengthBatches

LENGTHS = np.random.default_rng(0).lognormal(4, 0.7, 1000).astype(np.int64) + 1


def share(size, batch_size, world_size=1, epoch=0, **options):
    """For each process the list of its batches."""
    result = []
    for rank in range(world_size):
        sampler = LengthBatches(LENGTHS[:size], batch_size, rank=rank, world_size=world_size, **options)
        sampler.set_epoch(epoch)
        result.append(list(sampler))
        assert len(result[-1]) == len(sampler) == len(result[0])
    return result


def join(shares):
    return torch.cat([batch for batches in shares for batch in batches])


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_all_samples_come_once_in_evaluation_from_long_to_short_and_in_training_where_none_are_dropped(world_size):
    for size in (3, 5, 24, 100, 107):
        taken = share(size, 4, world_size, train=False, epoch=size)
        assert join(taken).sort().values.tolist() == list(range(size))
        for batches in taken:
            assert (np.diff(LENGTHS[torch.cat(batches).numpy()]) <= 0).all()
            assert max(map(len, batches)) <= 4 + (world_size > 1)
        taken = share(size, 8, world_size, train=True, drop_last=False)
        samples = join(taken)
        assert len(samples) == len(samples.unique()) > size - world_size
        assert max(len(batch) for batches in taken for batch in batches) <= 8


def test_training_batches_are_full_and_random_samples_are_left_out():
    left_out = []
    for epoch in range(30):
        batches = share(101, 10, train=True, epoch=epoch)[0]
        assert {len(batch) for batch in batches} == {10}
        left_out += set(range(101)) - set(torch.cat(batches).tolist())
    assert len(left_out) == 30
    assert len(set(left_out)) > 15  # not always the longest
    repeated = share(101, 10, train=True, epoch=1, repeat=True)
    assert join(repeated).equal(join(share(101, 10, train=True)))
    assert not join(repeated).equal(join(share(101, 10, train=True, seed=1)))


def test_training_pads_little_in_random_order_and_processes_share_a_step_of_equal_lengths():
    batches = share(1000, 16, train=True)[0]
    longest = np.array([LENGTHS[batch.numpy()].max() for batch in batches])
    assert 16 * longest.sum() < 1.1 * LENGTHS[torch.cat(batches).numpy()].sum()
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.3
    for whole, *parts in zip(batches, *share(1000, 8, 2, train=True), strict=True):
        assert sorted(whole.tolist()) == sorted(torch.cat(parts).tolist())
        longer, shorter = (LENGTHS[part.numpy()].max() for part in parts)
        assert shorter > 0.6 * longer or longer > 250
