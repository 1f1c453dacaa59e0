"""Optimizers that torch lacks."""

from project.optim.muon_sgd import MuonSGD

__all__ = ["MuonSGD"]
