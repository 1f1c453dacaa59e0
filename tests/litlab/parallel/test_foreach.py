"""Operations on many tensors."""

import math

import pytest
import torch
from torch import nn

from litlab.callbacks.nan_guard import norm_of_all
from litlab.parallel.foreach import copy_all, local_part, norms_of


def test_norms_do_not_overflow():
    half, double = torch.full((4,), 6e4).half(), torch.full((4,), 1e100, dtype=torch.float64)
    assert norms_of([half, torch.tensor(3.0)]).tolist() == [2 * half[0].item(), 3]
    assert norms_of([double, half]).tolist() == [2e100, 2 * half[0].item()]
    assert norm_of_all([torch.full((4,), 3.0), torch.full((7,), 1.0)]).item() == pytest.approx(math.sqrt(43))
    assert norm_of_all([]).item() == 0.0


def test_a_sparse_gradient_shares_its_memory():
    """As autograd makes it, with one row for each time that an index was looked up."""
    layer = nn.Embedding(9, 1, sparse=True)
    layer(torch.tensor([1, 2, 1])).sum().backward()
    values = local_part(layer.weight.grad)
    assert values.shape == (3, 1)
    values.zero_()
    assert not layer.weight.grad.to_dense().any()


def test_copies():
    to, source = [torch.zeros(2), torch.zeros(())], [torch.full((2,), 4.0), torch.tensor(8.0)]
    copy_all(to, source)
    assert all(map(torch.equal, to, source))
    copy_all([], [])
