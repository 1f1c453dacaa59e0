"""Schedules, and optimizers that torch lacks."""

from project.optim.muon_sgd import MuonSGD
from litlab.optim.schedule import Schedule
from litlab.optim.warmup_decay import WarmupDecay

__all__ = ["MuonSGD", "Schedule", "WarmupDecay"]
