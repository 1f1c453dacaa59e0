"""Norms of tensors of several types."""

import torch

from litlab.util.tensors import compute_norm


def test_norms_do_not_overflow():
    half, double = torch.full((4,), 6e4).half(), torch.full((4,), 1e100, dtype=torch.float64)
    assert compute_norm([half, half, half, half]).item() == 4 * half[0].item()
    assert compute_norm([double] * 4).item() == 4e100
    assert compute_norm([]).item() == 0
