"""A network for tables: embeddings of numbers and categories, and hidden layers on both."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt


class TabularMLP(nn.Module):
    """Embed each number (`PiecewiseLinear`) and each category (Guo & Berkhahn 2016,
    arXiv:1604.06737), and put hidden layers on top.

    In training, some categories are replaced at random by number 0, which stands for unknown
    categories, so that its embedding works for all of them.

    Args:
        bin_edges: For each input that is a number, ascending values between which its embedding is
            linear. Taken from the data when left out.
        category_sizes: For each categorical input, the number of categories. Taken from the data
            when left out.
        num_outputs: Classes or targets. Taken from the data when left out.
        hidden_sizes: Units of each hidden layer, at least one.
        number_dim: Dimensions of the embedding of a number; 0: numbers are not embedded, which
            suits many similar inputs, such as pixels.
        embed_dim: Largest dimension of an embedding; a column with few categories gets half as many
            dimensions as categories.
        dropout: Share of the hidden units that are dropped in training.
        category_dropout: Share of the categories that are replaced by number 0 in training.

    Raises:
        ValueError: If there is no input or output.
    """

    def __init__(
        self,
        bin_edges: list[list[float]] | None = None,
        category_sizes: list[int] | None = None,
        num_outputs: int | None = None,
        hidden_sizes: Sequence[PositiveInt] = (256, 256),
        number_dim: NonNegativeInt = 16,
        embed_dim: PositiveInt = 16,
        dropout: HalfOpenUnitInterval = 0.1,
        category_dropout: HalfOpenUnitInterval = 0.05,
    ) -> None:
        super().__init__()
        edges, sizes = bin_edges or [], category_sizes or []
        if not num_outputs or not (edges or sizes):
            raise ValueError(
                "num_outputs, or what goes in, is not set, and the data does not "
                "provide it; set them"
            )
        dims = [min(embed_dim, (size + 1) // 2) for size in sizes]
        self.embeddings = nn.ModuleList(
            nn.Embedding(size, dim) for size, dim in zip(sizes, dims, strict=True)
        )
        is_embedded = edges and number_dim
        self.numbers = PiecewiseLinear(edges, number_dim) if is_embedded else nn.Identity()
        width = (number_dim or 1) * len(edges) + sum(dims)
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
        return self.layers(torch.cat([self.numbers(numbers), *embedded], dim=1))


class PiecewiseLinear(nn.Module):
    """Embed each number by a function of its own: linear between edges, and a ReLU after it.

    A number is written as how far it is through each of its bins, 0 before and 1 behind it, so
    that steps, and outliers, are as easy to learn as slopes (Gorishniy et al. 2022,
    arXiv:2203.05556). Beyond the outer edges nothing changes.

    Args:
        edges: Of the bins of each number, ascending, at least two.
        dim: Dimensions of an embedding.
    """

    def __init__(self, edges: list[list[float]], dim: int) -> None:
        super().__init__()
        bins = max(map(len, edges)) - 1
        # Columns of fewer bins get their last one several times
        starts = [[*row[:-1], *row[-2:-1] * (bins + 1 - len(row))] for row in edges]
        ends = [[*row[1:], *row[-1:] * (bins + 1 - len(row))] for row in edges]
        self.start: Tensor
        self.end: Tensor
        self.register_buffer("start", torch.tensor(starts))
        self.register_buffer("end", torch.tensor(ends))
        bound = bins**-0.5
        self.weight = nn.Parameter(torch.empty(len(edges), bins, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(len(edges), dim))

    def forward(self, numbers: Tensor) -> Tensor:
        """Return embeddings, (batch, column * dim), of numbers, (batch, column)."""
        size = (self.end - self.start).clamp(min=1e-6)  # in half precision some edges are equal
        through = (numbers.unsqueeze(-1) - self.start) / size
        embedded = torch.einsum("ncb,cbd->ncd", through.clamp(0, 1), self.weight) + self.bias
        return embedded.relu().flatten(1)
