"""A small Transformer with a plan, and data that no number of processes divides."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from litlab.data import ExperimentData
from litlab.data.target import Classes
from litlab.data.target_metadata import TargetMetadata
from litlab.parallel import ParallelPlan
from litlab.tasks import Classifier

TOKENS, TIME, CLASSES = 40, 7, 5


class Block(nn.Module):
    """Attention behind a norm."""

    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(size)
        self.inputs, self.output = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        heads = self.inputs(self.norm(x)).unflatten(-1, (self.heads, 3, -1)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(*heads.unbind(3))
        return x + self.dropout(self.output(attended.transpose(1, 2).flatten(2)))


class Transformer(nn.Module):
    parallel_plan = ParallelPlan(
        blocks=["blocks.*"],
        columns=["blocks.*.inputs"],
        rows=["blocks.*.output"],
        counts=["blocks.*.heads"],
    )

    def __init__(
        self, size: int = 16, heads: int = 4, dropout: float = 0.0, norm: bool = False
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, size)
        self.positions = nn.Parameter(torch.randn(TIME, size) * 0.1)
        self.blocks = nn.ModuleList(Block(size, heads, dropout) for _ in range(4))
        self.statistics = nn.BatchNorm1d(size) if norm else nn.Identity()
        self.head = nn.Linear(size, CLASSES)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.statistics(x.mean(dim=1)))


class Tokens(ExperimentData):
    """Sequences whose class is that of their most frequent residue."""

    num_classes = CLASSES
    metadata_type = TargetMetadata
    train_samples = 96

    def open(self, stage):
        self.sizes = {"train": self.train_samples, "val": 21, "test": 17}
        return TargetMetadata(target=Classes(["label"], [*map(str, range(CLASSES))]))

    def samples(self, split):
        generator = torch.Generator().manual_seed(len(split))
        ids = torch.randint(TOKENS, (self.sizes[split], TIME), generator=generator)
        return TensorDataset(ids, F.one_hot(ids % CLASSES, CLASSES).sum(1).argmax(1))


def classifier(optimizer="AdamW", lr=3e-3, foreach=None, seed=1, **settings):
    torch.manual_seed(seed)
    momentum = {"momentum": 0.9} if optimizer == "SGD" else {}
    update = partial(getattr(torch.optim, optimizer), lr=lr, foreach=foreach, **momentum)
    return Classifier(Transformer(**settings), num_classes=CLASSES, optimizer=update)
