"""How far two models are apart, and what is too far."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from litlab.commands.export.parity import Parity, compare
from litlab.data.serving import BATCH, TIME, TensorSpec
from litlab.errors import UserError
from tests.litlab.commands.export.test_servable import Rows


class Long(Rows):
    """Rows whose length is free, up to 9."""

    def __init__(self):
        super().__init__()
        self.inputs = (TensorSpec("rows", "float32", (BATCH, TIME), "numbers"),)
        self.most = {TIME: 9}


class Sum(nn.Module):
    """The sum of each row."""

    def forward(self, rows):
        return (rows.sum(dim=1, keepdim=True),)


def compared(change, rows=None, serving=None):
    rows = torch.arange(300.0).view(100, 3) if rows is None else rows

    def run(arrays):
        return [change(arrays[0].sum(axis=1, keepdims=True))]

    return compare(Sum(), run, serving or Rows(), iter([(rows[:60],), (rows[60:],)]), len(rows))


def test_equal_models_are_compared_at_several_sizes():
    found = compared(lambda sums: sums)
    assert (found.difference, found.mean_difference, found.equal_classes, found.samples) == (0.0, 0.0, None, 100)
    assert [size for size, _ in found.sizes] == [1, 2, 3, 7, 32, 15, 40]


def test_one_answer_that_is_off_is_found():
    rows = torch.arange(300.0).view(100, 3)
    found = compared(lambda sums: sums + 0.5 * (sums == rows[77].sum().item()))
    assert found.difference == pytest.approx(0.5, abs=1e-3)
    assert found.mean_difference == pytest.approx(0.005, abs=1e-4)
    with pytest.raises(UserError, match=r"differs by 0\.5 .*, where 0\.0001 is allowed; nothing was"):
        found.check(1e-4, is_quantized=False)
    found.check(1e-4, is_quantized=True)


def test_an_answer_that_is_no_number_is_infinitely_far_off():
    found = compared(lambda sums: np.where(sums > 800, np.nan, sums).astype(np.float32))
    assert math.isinf(found.difference)
    with pytest.raises(UserError, match="differs by inf"):
        found.check(1e-4, is_quantized=True)


def test_large_numbers_may_differ_in_their_last_bits():
    rows = torch.full((100, 3), 5e8)
    found = compared(lambda sums: np.nextafter(sums, np.float32(np.inf)), rows)
    assert found.difference == 0.0
    found = compared(lambda sums: sums * np.float32(1 + 1e-5), rows)
    assert found.difference > 1000


def test_other_axes_are_stretched_and_made_up_samples_do_not_count():
    found = compared(lambda sums: sums, serving=Long())
    assert found.samples == 100
    assert {length for _, length in found.sizes} == {1, 3, 9}


def test_few_bits_may_change_some_classes():
    good, bad = Parity(0.5, 0.01, 0.96, 100, []), Parity(0.5, 0.01, 0.94, 100, [])
    good.check(1e-4, is_quantized=True)
    with pytest.raises(UserError, match=r"differs by 0\.5"):
        bad.check(1e-4, is_quantized=True)
