"""A network for tables: embeddings of categories beside the numbers, and hidden layers on both."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from litlab.types import HalfOpenUnitInterval, PositiveInt


class TabularMLP(nn.Module):
    """Embed each category (Guo & Berkhahn 2016, arXiv:1604.06737), join numbers, and put hidden
    layers on top.

    In training some categories are hidden at random, so that number 0, which stands for those that
    were never seen, gets an embedding that serves for all of them.

    Args:
        num_numbers: Inputs that are numbers. Taken from the data when left out.
        category_sizes: For each input of categories how many there are. Taken from the data when
            left out.
        num_outputs: Classes or targets. Taken from the data when left out.
        hidden_sizes: Units of each hidden layer, at least one.
        embed_dim: Most dimensions of an embedding; categories of which there are few get half as
            many as they are.
        dropout: Share of the hidden units that are dropped in training.
        category_dropout: Share of the categories that are hidden in training.

    Raises:
        ValueError: If there is no input or output.
    """

    def __init__(
        self,
        num_numbers: int | None = None,
        category_sizes: list[int] | None = None,
        num_outputs: int | None = None,
        hidden_sizes: Sequence[PositiveInt] = (256, 256),
        embed_dim: PositiveInt = 16,
        dropout: HalfOpenUnitInterval = 0.4,
        category_dropout: HalfOpenUnitInterval = 0.05,
    ) -> None:
        super().__init__()
        sizes = list(category_sizes or [])
        if not num_outputs or not (num_numbers or sizes):
            raise ValueError(
                "num_outputs, or what goes in, is not set, and the data does not "
                "provide it; set them"
            )
        dims = [min(embed_dim, (size + 1) // 2) for size in sizes]
        self.embeddings = nn.ModuleList(
            nn.Embedding(size, dim) for size, dim in zip(sizes, dims, strict=True)
        )
        width = (num_numbers or 0) + sum(dims)
        layers: list[nn.Module] = []
        for hidden in hidden_sizes:
            layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout)]
            width = hidden
        self.layers = nn.Sequential(*layers, nn.Linear(width, num_outputs))
        self.category_dropout = category_dropout

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        """Return logits or standardised predictions, shape (batch, outputs).

        Args:
            numbers: Standardised, float of shape (batch, column).
            categories: From 0, int64 of shape (batch, column).
        """
        if self.training and self.category_dropout:
            categories = categories * (
                torch.rand(categories.shape, device=categories.device) >= self.category_dropout
            )
        embedded = [
            embedding(categories[:, place]) for place, embedding in enumerate(self.embeddings)
        ]
        return self.layers(torch.cat([numbers, *embedded], dim=1))
