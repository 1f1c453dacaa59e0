"""TabularMLP: shapes, and what it does with numbers and categories."""

import pytest
import torch

from project.networks.tabular_mlp import PiecewiseLinear, TabularMLP


@pytest.mark.parametrize(("numbers", "sizes"), [(3, [4, 50]), (3, []), (0, [4, 2])])
def test_each_category_counts_by_its_own_embedding(numbers, sizes):
    network = TabularMLP([[-1.0, 0.0, 2.0]] * numbers, sizes, 5, (8, 6)).eval()
    values, codes = torch.randn(50, numbers), torch.ones(50, len(sizes), dtype=torch.int64)
    expected = network(values, codes)
    assert expected.shape == (50, 5)
    codes[0] = 0
    differs = (network(values, codes) != expected).any(dim=1)
    assert differs.nonzero().flatten().tolist() == ([0] if sizes else [])


def test_numbers_go_in_as_they_are():
    network = TabularMLP([[0.0, 1.0]], None, 1, (8,), number_dim=0).eval()
    outside = torch.tensor([[5.0], [9.0]])
    expected = network.layers(outside)
    assert torch.equal(network(outside, torch.empty(2, 0, dtype=torch.int64)), expected)
    assert expected[0] != expected[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_number_is_embedded_by_what_its_bins_weigh(dtype):
    """Bins of different number and size, some too small to tell apart; beyond them all stays."""
    edges = [[-1.0, 0.0, 2.0, 2.0 + 1e-9, 4.0], [0.0, 1.0]]
    embed = PiecewiseLinear(edges, 1)
    embed.weight.data = torch.tensor([[1.0, 10, 5, 100], [3, 0, 0, 0]]).unsqueeze(-1)
    numbers = torch.tensor([[-9, 0], [-1, 0.5], [-0.5, 1], [1, 7], [3, -2], [9, 0]])
    expected = [[0, 0], [0, 1.5], [0.5, 3], [6, 3], [66, 0], [116, 0]]
    found = embed.to(dtype)(numbers.to(dtype))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))
