"""TabularMLP: shapes, and what it does with categories."""

import pytest
import torch

from project.networks.tabular_mlp import TabularMLP


def inputs(numbers: int, sizes: list[int], rows: int = 50):
    generator = torch.Generator().manual_seed(0)
    codes = [torch.randint(1, size, (rows,), generator=generator) for size in sizes]
    categories = torch.stack(codes, dim=1) if codes else torch.zeros(rows, 0, dtype=torch.int64)
    return {"numbers": torch.randn(rows, numbers, generator=generator), "categories": categories}


@pytest.mark.parametrize(("numbers", "sizes"), [(3, [4, 50]), (3, []), (0, [4, 2])])
def test_shapes(numbers, sizes):
    network = TabularMLP(numbers, sizes, 5, (8, 6))
    assert network(**inputs(numbers, sizes)).shape == (50, 5)
    assert [tuple(e.weight.shape) for e in network.embeddings] == [(s, min(16, (s + 1) // 2)) for s in sizes]


def test_each_category_counts_by_its_own_embedding():
    network = TabularMLP(2, [4, 9], 1, dropout=0.0).eval()
    batch = inputs(2, [4, 9])
    expected = network(**batch)
    assert torch.equal(network(**batch), expected)  # nothing is hidden in evaluation
    changed = {**batch, "categories": batch["categories"].clone()}
    changed["categories"][0, 1] = 0
    differs = (network(**changed) != expected).flatten()
    assert differs.nonzero().flatten().tolist() == [0]
