"""Learning rate schedules."""

from litlab.optim.schedule import Schedule
from litlab.optim.warmup_decay import WarmupDecay

__all__ = ["Schedule", "WarmupDecay"]
