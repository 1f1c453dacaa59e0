"""Helpers for networks: their sizes checked, their first and last layer fitted to the data."""

from litlab.nn.adapt import adapt_network
from litlab.nn.sizes import DEEPEST, check_sizes

__all__ = ["DEEPEST", "adapt_network", "check_sizes"]
