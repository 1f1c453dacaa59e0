"""Time series: public and your own; checks, calendar, splits, windows, predictions."""

from litlab.data.series.datamodule import SeriesData

__all__ = ["SeriesData"]
