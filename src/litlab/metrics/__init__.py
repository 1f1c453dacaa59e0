"""Metrics that are exact over an epoch, any batch size and any number of processes."""

from litlab.metrics.means import Sums
from litlab.metrics.stage_metrics import StageMetrics

__all__ = ["StageMetrics", "Sums"]
