"""TabularMLP: shapes, and what it does with categories."""

import pytest
import torch

from project.networks.tabular_mlp import TabularMLP


@pytest.mark.parametrize(("numbers", "sizes"), [(3, [4, 50]), (3, []), (0, [4, 2])])
def test_each_category_counts_by_its_own_embedding(numbers, sizes):
    network = TabularMLP(numbers, sizes, 5, (8, 6)).eval()
    assert [tuple(e.weight.shape) for e in network.embeddings] == [
        (s, min(16, (s + 1) // 2)) for s in sizes
    ]
    values, codes = torch.randn(50, numbers), torch.ones(50, len(sizes), dtype=torch.int64)
    expected = network(values, codes)
    assert expected.shape == (50, 5)
    assert torch.equal(network(values, codes), expected)  # nothing is hidden in evaluation
    codes[0] = 0
    differs = (network(values, codes) != expected).any(dim=1)
    assert differs.nonzero().flatten().tolist() == ([0] if sizes else [])
