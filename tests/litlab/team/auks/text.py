"""Texts."""

from torch import nn


class MeanOfWords(nn.Module):
    """Classify a text by the mean of its words' embeddings.

    Args:
        embed_dim: Size of an embedding.
        vocab_size: Number of words. Taken from the data when left out.
        num_classes: Number of classes. Taken from the data when left out.
    """

    def __init__(
        self, embed_dim: int = 8, vocab_size: int | None = None, num_classes: int | None = None
    ) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size or 1, embed_dim, mode="mean", padding_idx=0)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(embed_dim, num_classes or 1))

    def forward(self, ids):
        return self.head(self.embedding(ids))
