import numpy as np
import pytest
import torch

from litlab.data.length_batches import LengthBatches
from litlab.errors import UserError

LENGTHS = np.random.default_rng(0).lognormal(4, 0.7, 1000).astype(np.int64) + 1


def ranks(lengths, batch_size, tokens=None, world_size=1, epoch=0, **options):
    """For each process the list of its batches."""
    samplers = [
        LengthBatches(lengths, batch_size, tokens, rank=rank, world_size=world_size, **options)
        for rank in range(world_size)
    ]
    result = []
    for sampler in samplers:
        sampler.set_epoch(epoch)
        result.append(list(sampler))
        assert len(result[-1]) == len(sampler)
        assert all(batch.dtype == torch.int64 for batch in result[-1])
    assert len({len(batches) for batches in result}) == 1
    assert min(len(batch) for batches in result for batch in batches) >= 1
    return result


def padded(lengths, batch):
    return len(batch) * lengths[batch.numpy()].max()


@pytest.mark.parametrize("tokens", [None, 1, 30, 200])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_takes_each_sample_once(world_size, tokens):
    for size in [*range(world_size, 30), 100]:
        lengths = LENGTHS[:size]
        taken = ranks(lengths, 4, tokens, world_size, train=False)
        everything = torch.cat([batch for batches in taken for batch in batches])
        assert everything.sort().values.tolist() == list(range(size))
        for batches in taken:
            own = lengths[torch.cat(batches).numpy()]
            assert (np.diff(own) <= 0).all()  # from long to short
            if tokens is None:
                assert max(len(batch) for batch in batches) <= 4 + (world_size > 1)
            elif world_size == 1:
                assert all(len(batch) == 1 or padded(lengths, batch) <= tokens for batch in batches)


def test_evaluation_does_not_depend_on_seed_and_epoch():
    one, other = (ranks(LENGTHS, 8, train=False, seed=seed, epoch=seed)[0] for seed in (0, 1))
    assert torch.cat(one).equal(torch.cat(other))


def test_training_batches_are_full_and_random_ones_are_left_out():
    sizes, left_out = set(), []
    for epoch in range(30):
        batches = ranks(LENGTHS[:101], 10, train=True, epoch=epoch)[0]
        taken = torch.cat(batches)
        assert len(taken) == len(taken.unique()) == 100
        sizes |= {len(batch) for batch in batches}
        left_out.append(next(iter(set(range(101)) - set(taken.tolist()))))
    assert sizes == {10}
    assert len(set(left_out)) > 15  # not always the longest


def test_few_samples_still_make_a_batch_for_each_process():
    assert len(ranks(LENGTHS[:3], 8, train=True)[0][0]) == 3
    assert [len(batches[0]) for batches in ranks(LENGTHS[:5], 8, world_size=2, train=True)] == [2, 2]
    many = ranks(LENGTHS[:9], 8, 10**6, world_size=4, train=True)
    assert sorted(torch.cat([batches[0] for batches in many]).tolist()) == list(range(9))


@pytest.mark.parametrize("tokens", [None, 2000])
def test_training_pads_little(tokens):
    sampler = LengthBatches(LENGTHS, 16, tokens, train=True)
    random = LengthBatches(LENGTHS, 16, train=True)
    random.bounds = np.ones_like(LENGTHS)

    def padding(batches: LengthBatches) -> float:
        """Padded tokens per real token."""
        return sum(padded(LENGTHS, batch) for batch in batches) / LENGTHS[batches.order.numpy()].sum()

    assert padding(sampler) < 1.1
    assert padding(random) > 1.5


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_token_budget_is_kept_and_the_number_of_batches_stays(world_size):
    lengths = np.append(LENGTHS[LENGTHS < 300], 900)  # one is longer than the budget
    counts = set()
    for epoch in range(5):
        taken = ranks(lengths, 8, 600, world_size, train=True, epoch=epoch)
        counts.add(len(taken[0]))
        for batch in [batch for batches in taken for batch in batches]:
            assert padded(lengths, batch) <= 600 or batch.tolist() == [len(lengths) - 1]
        samples = torch.cat([batch for batches in taken for batch in batches])
        assert len(samples) == len(samples.unique()) >= len(lengths) * (1 if world_size == 1 else 0.95)
    assert len(counts) == 1


def test_batches_that_not_every_process_gets_are_left_out_at_random():
    left_out = set()
    for epoch in range(20):
        taken = ranks(LENGTHS[:100], 8, 450, 2, train=True, epoch=epoch)  # of 19 batches
        samples = torch.cat([batch for batches in taken for batch in batches])
        missing = LENGTHS[sorted(set(range(100)) - set(samples.tolist()))]
        assert 0 < len(missing) <= max(1, 450 / missing.max())  # one batch
        left_out.add(int(missing.max()))
    assert len(left_out) > 5


def test_order_is_a_function_of_seed_and_epoch():
    def order(tokens=None, **options):
        return torch.cat(ranks(LENGTHS[:64], 8, tokens, train=True, **options)[0]).tolist()

    for tokens in (None, 500):
        assert order(tokens, seed=1, epoch=2) == order(tokens, seed=1, epoch=2)
        assert len({tuple(order(tokens, seed=s, epoch=e)) for s in range(4) for e in range(4)}) == 16
        assert order(tokens, seed=1, epoch=2, repeat=True) == order(tokens, seed=1, epoch=0)


def test_lengths_come_in_random_order_and_neighbours_vary():
    first, second = (ranks(LENGTHS, 8, train=True, epoch=epoch)[0] for epoch in (0, 1))
    longest = np.array([LENGTHS[batch.numpy()].max() for batch in first])
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.3
    assert len({frozenset(batch.tolist()) for batch in first} & {frozenset(batch.tolist()) for batch in second}) < 12


def test_processes_share_a_step_of_equal_lengths():
    one = ranks(LENGTHS, 8, train=True, seed=3)[0]
    two = ranks(LENGTHS, 4, train=True, seed=3, world_size=2)
    for whole, a, b in zip(one, *two, strict=True):
        assert set(whole.tolist()) == set(a.tolist()) | set(b.tolist())
        longer, shorter = LENGTHS[a.numpy()].max(), LENGTHS[b.numpy()].max()
        assert shorter > 0.6 * longer or longer > 250


def test_global_generators_are_left_alone():
    torch.manual_seed(0)
    np.random.seed(0)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(0)
    np.random.seed(0)
    ranks(LENGTHS, 8, train=True)
    assert (torch.rand(1), np.random.rand()) == expected


def test_fewer_samples_than_processes_is_an_error():
    with pytest.raises(UserError) as error:
        LengthBatches(LENGTHS[:2], 4, train=False, world_size=3, name="test texts")
    expected = "test texts: 2 samples can't be shared by 3 processes; use fewer (--trainer.devices)"
    assert str(error.value) == expected
