"""How far two models are apart, and what is too far."""

import math

import numpy as np
import pytest
import torch
from torchmetrics import JaccardIndex

from litlab.commands.export import export_run
from litlab.commands.export.parity import Parity, compare
from litlab.data.serving import BATCH, TIME, TensorSpec
from litlab.errors import UserError
from litlab.metrics import StageMetrics
from tests.litlab.commands.export.test_graph import Rows

ROWS = torch.arange(300.0).view(100, 3)
BATCHES = [(ROWS[:60],), (ROWS[60:],)]


def measure(change, serving=None):
    """Compare sums with changed ones; the parity, and the shapes that were compared."""
    shapes = []

    def run(arrays):
        shapes.append(arrays[0].shape)
        return [change(arrays[0].sum(axis=1, keepdims=True))]

    def add_up(rows):
        return (rows.sum(dim=1, keepdim=True),)

    return compare(add_up, run, serving or Rows(), iter(BATCHES)), shapes


def test_equal_models_are_compared_at_several_sizes():
    parity, shapes = measure(lambda sums: sums)
    assert parity == Parity(0.0, 0.0, None, 100)
    assert [size for size, _ in shapes] == [1, 2, 3, 7, 32, 15, 40]
    _, shapes = measure(lambda sums: sums, Rows(TIME))
    assert shapes[:3] == [(2, 1), (2, 9), (1, 3)]


def test_one_answer_that_is_off_is_found():
    parity, _ = measure(lambda sums: sums + 0.5 * (sums == ROWS[77].sum().item()))
    assert parity.difference == pytest.approx(0.5, abs=1e-3)
    assert parity.mean_difference == pytest.approx(0.005, abs=1e-4)
    serving = Rows()
    serving.unit = lambda: torch.tensor(4.0)
    parity, _ = measure(lambda sums: sums + 1, serving)
    assert parity.difference == pytest.approx(0.25, abs=1e-4)
    parity, _ = measure(lambda sums: np.where(sums > 800, np.nan, sums).astype(np.float32))
    assert math.isinf(parity.difference)


def test_whole_numbers_and_masks_are_compared():
    serving = Rows()
    serving.outputs = (TensorSpec("place", "int64", (BATCH,), ""), *serving.outputs)
    parity = compare(
        lambda rows: (rows.argmax(dim=1), (rows > 100).unsqueeze(1)),
        lambda arrays: [arrays[0].argmax(axis=1) + 1, (arrays[0] > 100)[:, None]],
        serving,
        iter(BATCHES),
    )
    assert parity == Parity(1.0, 0.5, None, 100)


def test_what_is_too_far():
    """Few bits may change some classes."""
    Parity(0.5, 0.01, 0.96, 100).check(1e-4, is_quantized=True)
    Parity(0.09, 0.01, None, 100).check(0.1, is_quantized=False)
    for parity, is_quantized in [
        (Parity(0.11, 0.001, None, 100), False),
        (Parity(0.5, 0.01, 0.94, 100), True),
        (Parity(0.5, 0.03, None, 100), True),
        (Parity(math.inf, math.inf, None, 100), True),
    ]:
        with pytest.raises(UserError, match="differs by"):
            parity.check(0.1, is_quantized)


def test_metrics_that_take_no_predictions_are_named():
    """As of a model whose `predict_step` returns something else than `convert`."""
    metrics = StageMetrics("test", {"iou": JaccardIndex("multiclass", num_classes=3)})
    serving = Rows()
    serving.target = lambda batch: torch.zeros(4, 2, 2, dtype=torch.int64)
    with pytest.raises(UserError, match=r"\(4, 3\), for targets \(4, 2, 2\)"):
        export_run.test_exported(metrics, [ROWS[:4]], serving, list)
