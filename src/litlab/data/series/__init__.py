"""Time series: your own and public ones; checks, calendar, splits, windows, predictions."""

from litlab.data.series.datamodule import SeriesData
from litlab.data.series.metadata import SeriesMetadata
from litlab.data.series.source import PublicSeries

__all__ = ["PublicSeries", "SeriesData", "SeriesMetadata"]
