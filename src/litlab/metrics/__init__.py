"""Metrics that are exact over an epoch, any batch size and any number of processes."""

from litlab.metrics.stage_metrics import StageMetrics
from litlab.metrics.sums import Sums

__all__ = ["StageMetrics", "Sums"]
