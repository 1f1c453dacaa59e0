"""Raw texts with their labels, and where they come from."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Corpus:
    """Raw texts.

    Args:
        class_names: Name of each class, in the order of the labels.
        texts: For "train", and "test" where there is one, the texts.
        labels: For each of them the class of each text, int64 of shape (texts,).
        dropped: For each of them the number of bad rows that were left out.
        notes: For each of them lines that the user should see: rows left out, odd labels.
    """

    class_names: list[str]
    texts: dict[str, list[str]]
    labels: dict[str, Tensor]
    dropped: dict[str, int] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where a corpus comes from.

    Args:
        name: Short name, part of the cache's.
        digest: Changes whenever the texts or labels do.
        has_test: Whether there is a test split already.
        class_names: Name of each class, None where the texts must be read to know.
        read: Reads the corpus.
    """

    name: str
    digest: str
    has_test: bool
    class_names: list[str] | None
    read: Callable[[], Corpus]
