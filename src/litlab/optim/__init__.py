"""Optimizers, parameter groups, learning-rate schedules, and what optimizers ask of a device."""

from litlab.optim.combined import Chain, Sequence
from litlab.optim.muon import Muon
from litlab.optim.newton_schulz import orthogonalise
from litlab.optim.param_groups import GroupRule, ParamGroups
from litlab.optim.schedule import Schedule
from litlab.optim.warmup_decay import WarmupDecay
from litlab.util.device import has_fast_bfloat16

__all__ = [
    "Chain",
    "GroupRule",
    "Muon",
    "ParamGroups",
    "Schedule",
    "Sequence",
    "WarmupDecay",
    "has_fast_bfloat16",
    "orthogonalise",
]
