"""Texts."""

from lightning.pytorch.cli import OptimizerCallable
from torch import nn

from litlab.errors import UserError
from litlab.optim import Schedule
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
        label_smoothing: Share of the target that is spread evenly over all classes.
        optimizer: Any torch.optim class, without its parameters.
        schedule: Learning-rate schedule.
    """

    def __init__(
        self,
        embed_dim: int = 8,
        vocab_size: int | None = None,
        num_classes: int | None = None,
        label_smoothing: float = 0.0,
        optimizer: OptimizerCallable | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        if vocab_size is None or num_classes is None:
            raise UserError("model: vocab_size or num_classes is not set, and the data does not give it")
        network = MeanOfWords(vocab_size, embed_dim, num_classes)
        super().__init__(
            network, num_classes=num_classes, label_smoothing=label_smoothing, optimizer=optimizer, schedule=schedule
        )
