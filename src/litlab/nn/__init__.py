"""Helpers for networks: pre-trained ones, their first and last layer fitted to the data, sizes checked."""

from litlab.nn.adapt import adapt_network
from litlab.nn.pretrained import pretrained
from litlab.nn.sizes import MAX_LAYERS, check_sizes
from litlab.nn.vmapping import refused_by_vmap, why_not_vmap
from litlab.util.renamed import renamed_attributes

__all__ = ["MAX_LAYERS", "adapt_network", "check_sizes", "pretrained", "refused_by_vmap", "why_not_vmap"]

__getattr__ = renamed_attributes(__name__, "0.4.0", DEEPEST="MAX_LAYERS")
