"""Helpers for networks: pre-trained ones, their first and last layer fitted to the data."""

from litlab.nn.adapt import adapt_network, pretrained
from litlab.nn.pretrained_text import PretrainedText

__all__ = ["PretrainedText", "adapt_network", "pretrained"]
