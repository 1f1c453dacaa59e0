"""Time series: your own and public ones; checks, calendar, splits, windows, predictions."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.series.datamodule import PublicSeries, SeriesData

__all__ = ["PublicSeries", "SeriesData"]

__getattr__ = export_lazily(__name__)
