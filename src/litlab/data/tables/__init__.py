"""Tables of numbers and categories."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.tables.datamodule import TabularData

__all__ = ["TabularData"]

__getattr__ = export_lazily(__name__)
