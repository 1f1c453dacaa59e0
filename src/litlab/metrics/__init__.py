"""Metrics that are exact over an epoch, any batch size and any number of processes."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.metrics.conformal import Conformal
    from litlab.metrics.forecast_metrics import ForecastMetrics
    from litlab.metrics.mean_loss import MeanLoss
    from litlab.metrics.regression_errors import RegressionErrors
    from litlab.metrics.stage_metrics import StageMetrics

__all__ = ["Conformal", "ForecastMetrics", "MeanLoss", "RegressionErrors", "StageMetrics"]

__getattr__ = export_lazily(__name__)
