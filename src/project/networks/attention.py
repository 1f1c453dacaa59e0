"""Multi-head attention, written out and fused, and the encoder block around it."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def math_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention as equation 1 of *Attention Is All You Need* writes it.

    softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017, arXiv:1706.03762). ``F.scaled_dot_product_attention`` computes the
    same without keeping the weights, faster and in less memory.

    Args:
        queries: Shape (batch, head, time, d).
        keys: Shape (batch, head, time, d).
        values: Shape (batch, head, time, d).
        mask: True where a key may be attended to, shape (batch, 1, 1, time); at least one in each row.

    Returns:
        The attended values, shape (batch, head, time, d), and the weights, shape (batch, head, time, time), whose last
        dimension sums to 1 and is 0 where the mask is False.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights @ values, weights


class MultiHeadAttention(nn.Module):
    """Self-attention with several heads (Vaswani et al. 2017, section 3.2.2).

    Args:
        embed_dim: Size of a token's vector; the heads share it equally.
        num_heads: Number of heads.
        implementation: sdpa, torch's fused kernels, or math, equation 1 written out, which returns the weights.
    """

    def __init__(self, embed_dim: int, num_heads: int, implementation: Literal["sdpa", "math"] = "sdpa") -> None:
        super().__init__()
        self.num_heads = num_heads
        self.implementation = implementation
        self.queries_keys_values = nn.Linear(embed_dim, 3 * embed_dim)  # one product instead of three
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor | None]:
        """Let every token attend to the real ones.

        Args:
            x: Shape (batch, time, embed_dim).
            real: False at padding, shape (batch, time); at least one True in each row.

        Returns:
            Shape (batch, time, embed_dim), and the weights of `math`, shape (batch, head, time, time).
        """
        projected = self.queries_keys_values(x).unflatten(-1, (3, self.num_heads, -1))  # (batch, time, 3, head, d)
        queries, keys, values = projected.permute(2, 0, 3, 1, 4).unbind(0)
        # The mask is used even where nothing is padded: to find that out, a GPU would have to be waited for.
        mask = real[:, None, None, :]
        weights = None
        if self.implementation == "math":
            attended, weights = math_attention(queries, keys, values, mask)
        else:
            attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        return self.output(attended.transpose(1, 2).flatten(2)), weights


class EncoderBlock(nn.Module):
    """One layer of a Transformer encoder: attention, then a feed-forward network for each token by itself.

    Dropout is applied to what each of the two adds, as in the paper, and not to the attention weights: CPUs have no
    fused attention that drops weights.

    Args:
        embed_dim: Size of a token's vector.
        num_heads: Number of attention heads.
        dim_feedforward: Hidden units of the feed-forward network.
        dropout: Probability of dropping a value that attention or the feed-forward network adds.
        norm: Where layer normalisation stands. pre: before each of the two, which leaves a clear path for gradients
            (Xiong et al. 2020, arXiv:2002.04745); post: after each sum, as Vaswani et al. have it.
        attention: Implementation of the attention, sdpa or math.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int,
        *,
        dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        attention: Literal["sdpa", "math"] = "sdpa",
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention = MultiHeadAttention(embed_dim, num_heads, attention)
        hidden, output = nn.Linear(embed_dim, dim_feedforward), nn.Linear(dim_feedforward, embed_dim)
        self.feedforward = nn.Sequential(hidden, nn.GELU(), output)
        self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Shape (batch, time, embed_dim) from the same; `real`, shape (batch, time), is False at padding."""
        if self.norm == "pre":
            x = x + self.dropout(self.attention(self.norm1(x), real)[0])
            return x + self.dropout(self.feedforward(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, real)[0]))
        return self.norm2(x + self.dropout(self.feedforward(x)))
