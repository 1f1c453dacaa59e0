"""Helpers for networks: pre-trained ones, their first and last layer fitted to the data, sizes checked."""

from litlab.nn.adapt import adapt_network
from litlab.nn.pretrained import pretrained
from litlab.nn.sizes import DEEPEST, check_sizes
from litlab.nn.vmapping import refused_by_vmap, why_not_vmap

__all__ = ["DEEPEST", "adapt_network", "check_sizes", "pretrained", "refused_by_vmap", "why_not_vmap"]
