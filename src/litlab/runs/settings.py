"""Shim."""

from litlab.runs.compare import as_text as format_value
from litlab.runs.compare import differences, read_config
from litlab.runs.compare import flat_config as flatten

__all__ = ["differences", "flatten", "format_value", "read_config"]
