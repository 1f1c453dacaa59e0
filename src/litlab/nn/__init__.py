"""Helpers for networks: pre-trained ones, their first and last layer fitted to the data."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.nn.adapt import adapt_network, pretrained
    from litlab.nn.pretrained_text import PretrainedText

__getattr__ = export_lazily(__name__)
