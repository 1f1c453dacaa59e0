"""Calendar features: what is known of the future."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Covariate = Literal["minute", "hour", "weekday", "day", "month"]


def make_calendar(times: Any, covariates: list[Covariate]) -> Tensor:
    """Tell where each time is in its hour, day, week, month or year.

    Each covariate is an angle, given by its sine and cosine, so that 23 h is as near to 0 h as 1 h is.

    Args:
        times: The times, a DatetimeIndex.
        covariates: `minute` of the hour, `hour` of the day, `weekday` (from Monday), `day` of the month (a month's
            length is a full turn), `month` of the year.

    Returns:
        float32 (time, 2 x covariates): sine and cosine of the first covariate, of the second, ...
    """
    shares = {
        "minute": times.minute / 60,
        "hour": times.hour / 24,
        "weekday": times.day_of_week / 7,
        "day": (times.day - 1) / times.days_in_month,
        "month": (times.month - 1) / 12,
    }
    angles = 2 * np.pi * np.stack([shares[name] for name in covariates], axis=1)
    features = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return torch.from_numpy(features.reshape(len(times), -1)).float()
