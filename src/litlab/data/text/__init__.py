"""Texts: table files and public sets; tokenizer, cache, batches of equal lengths, predictions."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.text.datamodule import TextData
    from litlab.data.text.reading import PublicTexts
    from litlab.data.text.tokenizer import PADDING, UNKNOWN

__all__ = ["PADDING", "UNKNOWN", "PublicTexts", "TextData"]

__getattr__ = export_lazily(__name__)
