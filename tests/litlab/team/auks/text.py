"""Texts."""

from typing import Any

from torch import nn

from litlab.tasks import Classifier


class MeanOfWords(nn.Module):
    """Classify a text by the mean of its words' embeddings."""

    def __init__(self, vocab_size: int, embed_dim: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, embed_dim, mode="mean", padding_idx=0)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(embed_dim, num_classes))

    def forward(self, ids):
        return self.head(self.embedding(ids))


class SmallTextClassifier(Classifier):
    """Classify texts by the mean of their words' embeddings.

    Args:
        embed_dim: Size of an embedding.
        vocab_size: Number of words. Taken from the data when left out.
        num_classes: Number of classes. Taken from the data when left out.
        **settings: As of `Classifier`.
    """

    def __init__(
        self,
        embed_dim: int = 8,
        vocab_size: int | None = None,
        num_classes: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            MeanOfWords(vocab_size, embed_dim, num_classes), num_classes=num_classes, **settings
        )
