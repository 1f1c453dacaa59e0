import torch

from litlab.util.peak_memory import peak_tensor_bytes


def test_the_most_that_is_there_at_once():
    def action():
        one = torch.zeros(1000, dtype=torch.float64)
        two = one + 1  # 16,000 bytes now
        del one
        return two[:500] * 2  # 12,000

    assert 16_000 <= peak_tensor_bytes(action) < 17_000


def test_what_was_there_before_does_not_count():
    before = [torch.zeros(100_000)]

    def action():
        before.clear()
        torch.zeros(1000)

    assert 4_000 <= peak_tensor_bytes(action) < 5_000
