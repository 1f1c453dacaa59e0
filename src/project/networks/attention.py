"""Multi-head attention, written out and fused, and the encoder block around it."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.errors import UserError
from litlab.types import ClosedUnitInterval


def plain_masked_softmax(scores: Tensor, mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """Softmax of ``scores * scale`` over the last dimension, among the keys that the mask allows.

    A query that may attend to no key gets 0, as does one whose scores are all -inf.

    Args:
        scores: Shape (..., query, key).
        mask: True where a key may be attended to; its shape broadcasts to that of the scores. None:
            everywhere.
        scale: What scores are multiplied by, usually 1 / sqrt(d).

    Returns:
        The weights, of the shape and type of the scores; they sum to 1 over the last dimension, or
        to 0.
    """
    scores = scores * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    # A softmax over no key is not a number
    nothing = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(nothing, 0.0).softmax(dim=-1).masked_fill(nothing, 0.0)


def math_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    *,
    softmax: Callable[[Tensor, Tensor | None, float], Tensor] = plain_masked_softmax,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention as equation 1 of *Attention Is All You Need* writes it.

    softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017, arXiv:1706.03762).
    ``F.scaled_dot_product_attention`` computes the same without keeping the weights, faster and in
    less memory. Like there, a query that may attend to no key gets 0.

    Args:
        queries: Shape (batch, head, query, d).
        keys: Shape (batch, head, key, d).
        values: Shape (batch, head, key, d).
        mask: True where a key may be attended to, or numbers that are added to the scores, such as
            -inf where it may not; its shape broadcasts to (batch, head, query, key).
        dropout: Probability of dropping a weight; the others are scaled up.
        softmax: Called with scores, mask and scale: `plain_masked_softmax`, or what computes the
            same faster.

    Returns:
        The attended values, shape (batch, head, query, d), and the weights before dropout, shape
        (batch, head, query, key), whose last dimension sums to 1.
    """
    scores, scale = queries @ keys.transpose(-2, -1), 1 / math.sqrt(queries.shape[-1])
    if mask is not None and mask.dtype != torch.bool:
        scores, mask, scale = scores * scale + mask, None, 1.0
    weights = softmax(scores, mask, scale)
    return F.dropout(weights, dropout) @ values, weights


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Return True where a key is not later than the query, shape (query, key): token i attends to
    tokens 0 to i.
    """
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(nn.Module):
    """Attention with several heads (Vaswani et al. 2017, section 3.2.2).

    Args:
        embed_dim: Size of a token's vector; the heads share it equally.
        num_heads: Number of heads.
        dropout: Probability of dropping an attention weight. On CPUs, torch has no fused attention
            with dropout.
        implementation: sdpa: torch's fused kernels; math: equation 1, written out.
        softmax: Class of the softmax for math, called like `plain_masked_softmax`
            (docs/operators.md).

    Raises:
        UserError: If there is a softmax, and nothing that calls it.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: ClosedUnitInterval = 0.0,
        implementation: Literal["sdpa", "math"] = "sdpa",
        softmax: Callable[[], nn.Module] | None = None,
    ) -> None:
        if softmax is not None and implementation == "sdpa":
            raise UserError(
                "model.network.attention.softmax: sdpa (torch's fused kernels) has its own "
                "softmax; set model.network.attention.implementation to math"
            )
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.implementation = implementation
        self.softmax = softmax() if softmax is not None else plain_masked_softmax
        # One product instead of three. Its rows are those of one head after the other, which can be
        # divided.
        self.queries_keys_values = nn.Linear(embed_dim, 3 * embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Let every token of x attend to the tokens of x, or to those of another sequence.

        Args:
            x: Shape (batch, query, embed_dim).
            context: For cross-attention, what keys and values are made of, shape (batch, key,
                embed_dim).
            mask: As of `math_attention`: boolean or additive, broadcasts to (batch, head, query,
                key). For causal attention, `causal_mask`.

        Returns:
            Shape (batch, query, embed_dim).
        """
        queries, keys, values = self.project(x, context)
        dropout = self.dropout if self.training else 0.0
        if self.implementation == "sdpa":
            attended = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, dropout_p=dropout
            )
        else:
            attended, _ = math_attention(queries, keys, values, mask, dropout, softmax=self.softmax)
        return self.output(attended.transpose(1, 2).flatten(2))

    def attention_weights(
        self, rows: Tensor, x: Tensor, context: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Return the weights of some rows of a batch, shape (row, head, query, key), for
        `AttentionPlot`.
        """
        if mask is not None and mask.ndim == 4 and len(mask) > 1:
            mask = mask[rows]
        context = None if context is None else context[rows]
        return math_attention(*self.project(x[rows], context), mask)[1]

    def project(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each of shape (batch, head, time, d)."""
        queries, keys, values = self._split(self.queries_keys_values(x))
        if context is not None:
            _, keys, values = self._split(self.queries_keys_values(context))
        return queries, keys, values

    def _split(self, projected: Tensor) -> tuple[Tensor, ...]:
        return projected.unflatten(-1, (self.num_heads, 3, -1)).transpose(1, 2).unbind(dim=3)


class EncoderBlock(nn.Module):
    """One layer of a Transformer encoder: attention, then a feed-forward network for each token by
        itself.

    Dropout is applied to what each of the two adds, as in the paper.

    Args:
        embed_dim: Size of a token's vector.
        num_heads: Number of attention heads.
        dim_feedforward: Hidden units of the feed-forward network.
        dropout: Probability of dropping a value that attention or the feed-forward network adds.
        feedforward_dropout: Probability of dropping a hidden unit of the feed-forward network.
        norm: Position of the normalisation. pre: before each of the two, which leaves a clear path
            for gradients (Xiong et al. 2020, arXiv:2002.04745); post: after each sum, as in Vaswani
            et al.
        norm_class: Class of the norms, called with embed_dim.
        attention: Class of the attention, called with embed_dim and num_heads. Its
            ``forward(x, mask=...)`` takes and returns tokens of shape (batch, time, embed_dim); the
            mask is as of `MultiHeadAttention`.
        activation: Class of the feed-forward network's activation.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dim_feedforward: int,
        *,
        dropout: float = 0.0,
        feedforward_dropout: float = 0.0,
        norm: Literal["pre", "post"] = "pre",
        norm_class: Callable[[int], nn.Module] = nn.LayerNorm,
        attention: Callable[[int, int], nn.Module] = MultiHeadAttention,
        activation: Callable[[], nn.Module] = nn.GELU,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention = attention(embed_dim, num_heads)
        hidden, output = (
            nn.Linear(embed_dim, dim_feedforward),
            nn.Linear(dim_feedforward, embed_dim),
        )
        self.feedforward = nn.Sequential(
            hidden, activation(), nn.Dropout(feedforward_dropout), output
        )
        self.norm1, self.norm2 = norm_class(embed_dim), norm_class(embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Shape (batch, time, embed_dim) from the same; `real`, shape (batch, time), is False at
        padding.
        """
        # The mask is used even where nothing is padded: to find that out, a GPU would have to be
        # waited for.
        mask = real[:, None, None, :]
        if self.norm == "pre":
            x = x + self.dropout(self.attention(self.norm1(x), mask=mask))
            return x + self.dropout(self.feedforward(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, mask=mask)))
        return self.norm2(x + self.dropout(self.feedforward(x)))
