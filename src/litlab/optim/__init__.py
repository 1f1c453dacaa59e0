"""Optimizers, parameter groups and learning-rate schedules."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.optim.muon import Muon, orthogonalise
    from litlab.optim.param_groups import GroupRule, ParamGroups
    from litlab.optim.schedule import Schedule, WarmupDecay

__getattr__ = export_lazily(__name__)
