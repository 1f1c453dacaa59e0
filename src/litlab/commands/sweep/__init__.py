"""Hyper-parameter sweeps: the verb ``sweep``."""
