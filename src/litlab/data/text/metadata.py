"""What is known of texts once they are read."""

from dataclasses import dataclass
from typing import Literal

from litlab.data.metadata import ClassMetadata


@dataclass(frozen=True)
class TextMetadata(ClassMetadata):
    """Metadata of texts.

    Args:
        tokenizer: The tokenizer as JSON.
        vocab_size: Upper bound of the vocabulary.
        max_tokens: Longest piece of a text that the model reads at once.
        long_texts: What happens to longer texts.
        columns: Names of the CSV columns where a file has no row of names.
        text_columns: CSV columns that make up the text.
        label_column: CSV column of the class.
        generated: Whether the texts are made up.
    """

    tokenizer: str
    vocab_size: int
    max_tokens: int
    long_texts: Literal["truncate", "crop"]
    columns: list[str] | None
    text_columns: list[str]
    label_column: str
    generated: bool
