"""Optimizers, parameter groups and learning-rate schedules."""

from litlab.optim.muon import Muon, orthogonalise
from litlab.optim.param_groups import GroupRule, ParamGroups
from litlab.optim.schedule import Schedule, WarmupDecay

__all__ = ["GroupRule", "Muon", "ParamGroups", "Schedule", "WarmupDecay", "orthogonalise"]
