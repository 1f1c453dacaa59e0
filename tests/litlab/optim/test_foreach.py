"""Operations on many tensors, and the names with an underscore of torch that they use."""

import math

import pytest
import torch
from torch import nn

from litlab.optim.foreach import copy_all, lerp_all, local_part, total_norm, zero_unless


def test_zero_unless_keeps_bits_and_removes_nan():
    values = [
        torch.tensor([math.nan, -0.0, 3.0]),
        torch.tensor([math.inf, 2.0], dtype=torch.bfloat16),
        torch.tensor(1e-300).double(),
    ]
    kept = [value.clone() for value in values]
    zero_unless(torch.tensor(True), kept)
    assert all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in zip(kept, values, strict=True))
    assert torch.signbit(kept[0][1])
    zero_unless(torch.tensor(False), kept)
    assert all((value == 0).all() for value in kept)


def test_the_norm_is_that_of_all_elements_and_float16_does_not_overflow():
    assert total_norm([torch.full((4,), 3.0), torch.full((7,), 1.0)]).item() == pytest.approx(math.sqrt(43))
    assert total_norm([torch.full((4,), 6e4, dtype=torch.float16)]).item() == 2 * torch.tensor(6e4).half().item()
    assert math.isnan(total_norm([torch.tensor([1.0, math.nan])]).item())
    assert total_norm([]).item() == 0.0


def test_a_sparse_gradient_shares_its_memory():
    """As autograd makes it, with one row for each time that an index was looked up."""
    layer = nn.Embedding(9, 1, sparse=True)
    layer(torch.tensor([1, 2, 1])).sum().backward()
    values = local_part(layer.weight.grad)
    assert values.shape == (3, 1)
    values.zero_()
    assert not layer.weight.grad.to_dense().any()


def test_copies_and_interpolations():
    to, source = [torch.zeros(2), torch.zeros(())], [torch.full((2,), 4.0), torch.tensor(8.0)]
    lerp_all(to, source, 0.25)
    assert [tensor.tolist() for tensor in to] == [[1.0, 1.0], 2.0]
    copy_all(to, source)
    assert all(map(torch.equal, to, source))
    copy_all([], [])
