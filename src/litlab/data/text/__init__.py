"""Texts: public sets and CSV files; tokenizer, cache, batches of equal lengths, n-gram evidence, predictions."""

from litlab.data.text.datamodule import TextData

__all__ = ["TextData"]
