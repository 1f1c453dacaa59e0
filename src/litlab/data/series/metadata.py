"""What is known of a series once it is read."""

from dataclasses import dataclass
from typing import Any

from litlab.data.metadata import Metadata
from litlab.data.series.covariates import Covariate
from litlab.data.series.step import Step
from litlab.errors import UserError


@dataclass(frozen=True)
class SeriesMetadata(Metadata):
    """Metadata of a series.

    Args:
        targets: Names of the columns to forecast: the channels.
        context_length: Rows that a forecast is made from.
        horizon: Rows to forecast.
        covariates: Calendar features that the model gets.
        time_column: Column of the times.
        step: Fields of the `Step` between rows.
        utc: Whether the times have UTC offsets.
        season: Rows of a season.
        mean: Mean of each channel in the training rows.
        scale: Standard deviation of each channel, likewise.
        naive_error: Mean absolute error of the seasonal naive forecast in the training rows, scaled, for each channel.
        generated: Whether the series is made up.
    """

    targets: list[str]
    context_length: int
    horizon: int
    covariates: list[Covariate]
    time_column: str
    step: dict[str, Any]
    utc: bool
    season: int
    mean: list[float]
    scale: list[float]
    naive_error: list[float]
    generated: bool

    def check_same(self, here: Any) -> None:
        """Refuse other columns, lengths, covariates, step, season or kind of times.

        Raises:
            UserError: One of them differs.
        """
        for key in ("targets", "context_length", "horizon", "covariates", "step", "season", "utc"):
            old, new = getattr(self, key), getattr(here, key)
            if old == new:
                continue
            if key == "step":
                old, new = Step(**old), Step(**new)
                raise UserError(
                    f"data: the rows are {new} apart, the checkpoint was trained on {old}; use rows with that step"
                )
            if key == "utc":
                have, lack = ("the checkpoint", "the data") if old else ("the data", "the checkpoint")
                raise UserError(
                    f"data: the times of {have} have UTC offsets, those of {lack} have none; write them alike"
                )
            old, new = (f"[{', '.join(value)}]" if isinstance(value, list) else value for value in (old, new))
            raise UserError(f"data.{key}: the checkpoint was trained with {old}, here it is {new}; set it to {old}")
