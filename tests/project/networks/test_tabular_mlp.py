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
@pytest.mark.parametrize("hidden", [(8,), (8, 6)])
def test_shapes(numbers, sizes, hidden):
    network = TabularMLP(numbers, sizes, 5, hidden)
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


def test_training_reaches_the_embedding_of_unseen_categories():
    torch.manual_seed(0)
    batch = inputs(2, [4, 9], rows=2000)
    for share in (0.0, 0.1):
        network = TabularMLP(2, [4, 9], 1, category_dropout=share)
        network(**batch).sum().backward()
        for embedding in network.embeddings:
            assert bool(embedding.weight.grad[0].any()) == (share > 0)
            assert embedding.weight.grad[1:].any(dim=1).all()
    hidden = []
    network.embeddings[0].register_forward_hook(
        lambda module, codes, out: hidden.append((codes[0] == 0).float().mean())
    )
    network(**batch)
    assert hidden[0].item() == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_numbers": 0, "category_sizes": []}, "inputs is 0: it must be 1 or more"),
        ({"num_outputs": None}, "num_outputs is 0: it must be 1 or more"),
        ({"embed_dim": 0}, "embed_dim is 0: it must be 1 or more"),
        ({"hidden_sizes": []}, "hidden_sizes is []: it must be 1 or more"),
        ({"hidden_sizes": [8, 0]}, "hidden_sizes is [8, 0]: it must be 1 or more"),
    ],
)
def test_sizes_that_make_no_network(settings, says):
    with pytest.raises(ValueError, match="it must be") as refused:
        TabularMLP(**{"num_numbers": 2, "num_outputs": 1, **settings})
    assert says in str(refused.value)
