"""Time series: public and your own; checks, calendar, splits, windows, predictions."""

from project.data.series.datamodule import SeriesData

__all__ = ["SeriesData"]
