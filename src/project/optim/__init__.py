"""Schedules, and optimizers that torch lacks."""

from project.optim.muon_sgd import MuonSGD
from project.optim.schedule import Schedule
from project.optim.warmup_decay import WarmupDecay

__all__ = ["MuonSGD", "Schedule", "WarmupDecay"]
