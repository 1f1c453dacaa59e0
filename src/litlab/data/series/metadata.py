"""What is known of a series once it is read."""

from dataclasses import dataclass
from typing import ClassVar

from litlab.data.metadata import Metadata
from litlab.data.series.calendar import Covariate


@dataclass(frozen=True)
class SeriesMetadata(Metadata):
    """Metadata of a series, or of several in one file.

    Args:
        targets: Names of the columns to forecast: the channels.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        covariates: Calendar features that the model gets.
        time_column: Column of the times.
        series_column: Column that tells which series a row belongs to; None: there is one.
        freq: Time from row to row, a pandas offset alias.
        utc: Whether the times have UTC offsets and count in UTC.
        season: Rows of a season.
        mean: Mean of each channel in the training rows.
        scale: Standard deviation of each channel, likewise.
        naive_error: Mean absolute error of the seasonal naive forecast in the training rows, scaled, for each channel.
        generated: Whether the series is made up.
    """

    fixed: ClassVar[tuple[str, ...]] = ("targets", "context_length", "horizon", "covariates", "freq", "season", "utc")
    targets: list[str]
    context_length: int
    horizon: int
    covariates: list[Covariate]
    time_column: str
    series_column: str | None
    freq: str
    utc: bool
    season: int
    mean: list[float]
    scale: list[float]
    naive_error: list[float]
    generated: bool
