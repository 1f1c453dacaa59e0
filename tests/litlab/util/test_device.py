"""Which devices compute in bfloat16 at full speed."""

import pytest
import torch

from litlab.util.device import has_fast_bfloat16


@pytest.mark.parametrize(
    ("features", "fast"),
    [({"avx512_bf16": True}, True), ({"bf16": True}, True), ({"avx2": True, "avx512_f": True}, False)],
)
def test_what_the_cpu_has(monkeypatch, features, fast):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features, raising=False)
    assert has_fast_bfloat16.__wrapped__(torch.device("cpu")) is fast
    assert has_fast_bfloat16.__wrapped__(torch.device("meta")) is False
