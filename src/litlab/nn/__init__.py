"""Helpers for networks: pre-trained ones, their first and last layer fitted to the data, sizes checked."""

from litlab.nn.adapt import adapt_network
from litlab.nn.pretrained_text import PretrainedText
from litlab.nn.sizes import MAX_LAYERS, check_sizes
from litlab.nn.torchvision_networks import pretrained

__all__ = ["MAX_LAYERS", "PretrainedText", "adapt_network", "check_sizes", "pretrained"]
