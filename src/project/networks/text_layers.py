"""What stands before and after the encoder blocks of a text network. None of it lets padding change
a real token.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoidal_positions(length: int, embed_dim: int) -> Tensor:
    """Return the fixed positions of Vaswani et al. 2017 (arXiv:1706.03762, section 3.5).

    Position p has sin(p / 10000^(2i / embed_dim)) at 2i and the cosine of the same at 2i + 1.

    Args:
        length: Number of positions.
        embed_dim: Size of a position's vector.

    Returns:
        Shape (length, embed_dim), from -1 to 1.
    """
    frequencies = torch.exp(torch.arange(0, embed_dim, 2) * (-math.log(10000) / embed_dim))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :embed_dim]


class ConvStem(nn.Module):
    """Add to each token what a convolution over its neighbours says: GELU(Conv1d(x)).

    Args:
        embed_dim: Size of a token's vector.
        kernel_size: Tokens that the convolution sees, an odd number.
    """

    def __init__(self, embed_dim: int, kernel_size: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(embed_dim, embed_dim, kernel_size, padding=kernel_size // 2)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Shape (batch, time, embed_dim) from the same, which must be 0 at padding and is again."""
        # As a matrix product: as fast, and compiled for any length. torch.compile (2.15) fixes the
        # sizes of what a convolution's gradient comes from, so it would compile again for each
        # length, until it gives up.
        size, side = self.convolution.kernel_size[0], self.convolution.kernel_size[0] // 2
        padded = F.pad(x, (0, 0, side, side))
        windows = torch.cat([padded[:, shift : shift + x.shape[1]] for shift in range(size)], dim=2)
        weight = self.convolution.weight.transpose(1, 2).flatten(1)  # (output, shift * input)
        neighbours = F.gelu(F.linear(windows, weight, self.convolution.bias))
        return x + neighbours.masked_fill(~real[:, :, None], 0.0)


class Patches(nn.Module):
    """Join neighbouring tokens to patches: a linear layer over a patch's tokens, plus their mean.

    Attention over patches costs the square of `size` less; the mean keeps what the tokens say in
    common from being learned anew for each place in a patch.

    Args:
        embed_dim: Size of a token's and of a patch's vector.
        size: Tokens in a patch.
    """

    def __init__(self, embed_dim: int, size: int) -> None:
        super().__init__()
        self.size = self.tokens_per_key = size  # the latter is what `AttentionPlot` asks for
        self.projection = nn.Linear(size * embed_dim, embed_dim)

    def forward(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Join tokens; a patch that is partly padding takes the mean of its real tokens.

        Args:
            x: 0 at padding, shape (batch, time, embed_dim).
            real: False at padding, shape (batch, time).

        Returns:
            Patches, shape (batch, patch, embed_dim) with ceil(time / size) of them, and False where
            a patch is all padding, shape (batch, patch).
        """
        patches = (x.shape[1] + self.size - 1) // self.size
        missing = patches * self.size - x.shape[1]
        # (batch, patch, size, embed_dim)
        tokens = F.pad(x, (0, 0, 0, missing)).unflatten(1, (patches, self.size))
        counts = F.pad(real.int(), (0, missing)).unflatten(1, (patches, self.size)).sum(dim=2)
        mean = tokens.sum(dim=2) / counts.clamp(min=1)[:, :, None]
        return self.projection(tokens.flatten(2)) + mean, counts > 0


class Pooling(nn.Module):
    """One vector for a text: mean, maximum or attention over its real tokens, or several of them
    side by side.

    Attention pooling weighs the tokens by the softmax of one learned score each (Lin et al. 2017,
    arXiv:1703.03130, with a linear score).

    Args:
        embed_dim: Size of a token's vector.
        kinds: Which, in the order in which they are concatenated.
    """

    def __init__(
        self, embed_dim: int, kinds: Sequence[Literal["mean", "max", "attention"]]
    ) -> None:
        super().__init__()
        self.kinds = tuple(kinds)
        # Without a bias: a softmax does not see it.
        if "attention" in kinds:
            self.score = nn.Linear(embed_dim, 1, bias=False)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Shape (batch, kinds x embed_dim) from x, shape (batch, time, embed_dim), and `real`,
        shape (batch, time).
        """
        padding = ~real[:, :, None]
        pooled = []
        for kind in self.kinds:
            if kind == "max":
                # Not amax: compiled for a CPU, its gradient in bfloat16 is NaN (torch 2.15).
                pooled.append(x.masked_fill(padding, -torch.inf).max(dim=1).values)
            elif kind == "mean":
                pooled.append(
                    x.masked_fill(padding, 0.0).sum(dim=1) / real.sum(dim=1, keepdim=True)
                )
            else:
                pooled.append((self.weigh(x, real) * x).sum(dim=1))
        return torch.cat(pooled, dim=1)

    def weigh(self, x: Tensor, real: Tensor) -> Tensor:
        """Return the weights of the tokens in attention pooling, shape (batch, time, 1)."""
        return self.score(x).masked_fill(~real[:, :, None], -torch.inf).softmax(dim=1)

    def attention_weights(self, rows: Tensor, x: Tensor, real: Tensor) -> Tensor | None:
        """Return the weights of some rows of a batch, shape (row, 1, 1, time), for
        `AttentionPlot`; None without attention pooling.
        """
        return self.weigh(x[rows], real[rows]).mT[:, None] if "attention" in self.kinds else None
