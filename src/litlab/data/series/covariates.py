"""Calendar features: what is known of the future."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from litlab.errors import UserError

Covariate = Literal["minute", "hour", "weekday", "day", "month"]


def check_covariates(covariates: list[Covariate]) -> None:
    """Refuse covariates of which one is listed twice.

    Raises:
        UserError: There is one.
    """
    for name in covariates:
        if covariates.count(name) > 1:
            raise UserError(f"data.covariates: {name!r} is listed twice; delete one")


def calendar_features(times: np.ndarray, covariates: list[Covariate]) -> Tensor | None:
    """Tell where each time is in its hour, day, week, month or year.

    Each covariate is an angle, given by its sine and cosine, so that 23 h is as near to 0 h as 1 h is.

    Args:
        times: datetime64[s] of shape (time,).
        covariates: `minute` of the hour, `hour` of the day, `weekday` (from Monday), `day` of the month (a month's
            length is a full turn), `month` of the year.

    Returns:
        float32 (time, 2 x covariates): sine and cosine of the first covariate, of the second, ...; None where
        there are no covariates.
    """
    if not covariates:
        return None
    minute, hour, day, month, year = (times.astype(f"datetime64[{unit}]") for unit in "mhDMY")
    length = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")
    shares = {
        "minute": (minute - hour).astype(np.int64) / 60,
        "hour": (hour - day).astype(np.int64) / 24,
        "weekday": (day.astype(np.int64) + 3) % 7 / 7,  # 1970-01-01 was a Thursday
        "day": (day - month).astype(np.int64) / length.astype(np.int64),
        "month": (month - year).astype(np.int64) / 12,
    }
    angles = 2 * np.pi * np.stack([shares[name] for name in covariates], axis=1)
    features = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return torch.from_numpy(features.reshape(len(times), -1).astype(np.float32))
