"""Norms of tensors of several types."""

import torch

from litlab.util.tensors import compute_norms


def test_norms_do_not_overflow():
    half, double = torch.full((4,), 6e4).half(), torch.full((4,), 1e100, dtype=torch.float64)
    assert compute_norms([half, torch.tensor(3.0)]).tolist() == [2 * half[0].item(), 3]
    assert compute_norms([double, half]).tolist() == [2e100, 2 * half[0].item()]
