"""Learning-rate schedules and parameter groups."""

from litlab.optim.param_groups import GroupRule, ParamGroups
from litlab.optim.schedule import Schedule
from litlab.optim.warmup_decay import WarmupDecay

__all__ = ["GroupRule", "ParamGroups", "Schedule", "WarmupDecay"]
