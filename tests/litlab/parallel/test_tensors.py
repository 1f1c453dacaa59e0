"""Operations on many tensors."""

import torch
from torch import nn

from litlab.callbacks.nan_guard import norm_of_all
from litlab.parallel.tensors import copy_all, copy_of, local_part, norms_of


def test_norms_do_not_overflow():
    half, double = torch.full((4,), 6e4).half(), torch.full((4,), 1e100, dtype=torch.float64)
    assert norms_of([half, torch.tensor(3.0)]).tolist() == [2 * half[0].item(), 3]
    assert norms_of([double, half]).tolist() == [2e100, 2 * half[0].item()]
    assert norm_of_all([torch.full((4,), 3.0), torch.full((13,), 1.0)]).item() == 7
    assert norm_of_all([]).item() == 0.0


def test_a_sparse_gradient_shares_its_memory():
    """As autograd makes it, with one row for each time that an index was looked up."""
    layer = nn.Embedding(9, 1, sparse=True)
    layer(torch.tensor([1, 2, 1])).sum().backward()
    local_part(layer.weight.grad).zero_()
    assert not layer.weight.grad.to_dense().any()


def test_copies():
    copy_all([], [])
    copied = copy_of(nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), torch.float32)
    copy_all([copied], [torch.full((2,), 4.0)])
    assert (copied.tolist(), copied.dtype, copied.requires_grad) == ([4.0, 4.0], torch.float32, False)
