"""Tables of numbers and categories."""

from litlab.data.tables.datamodule import TabularData
from litlab.data.tables.metadata import TabularMetadata

__all__ = ["TabularData", "TabularMetadata"]
