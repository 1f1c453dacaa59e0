"""A Transformer encoder that classifies texts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from litlab.data import PADDING, UNKNOWN
from litlab.errors import UserError
from litlab.parallel import ParallelPlan
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt, bounded
from project.networks.attention import EncoderBlock, MultiHeadAttention
from project.networks.ngrams import NGramLogOdds
from project.networks.text_layers import ConvStem, Patches, Pooling, sinusoidal_positions

if TYPE_CHECKING:
    VocabSize = int
    NumBuckets = int
else:
    VocabSize = bounded(int, ">= 2")  # padding and the unknown word
    NumBuckets = bounded(int, ">= 2")  # one is for no n-gram

EMBEDDING_STD = 0.1


class TextTransformer(nn.Module):
    """Token embedding, positions, encoder blocks, pooling and a linear head (Vaswani et al. 2017,
    arXiv:1706.03762).

    By default it is a plain encoder; the other options improve small models that are trained from
    scratch. The logits of a text don't depend on the padding after it.

    Args:
        embed_dim: Size of a token's vector.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads of a block; they share embed_dim equally.
        dim_feedforward: Hidden units of a block's feed-forward network.
        positions: learned, or the fixed sinusoidal ones of Vaswani et al. 2017.
        norm: Normalisation before (pre) or after (post) the parts of a block.
        norm_class: Class of the norms, called with embed_dim, such as torch.nn.LayerNorm or
            torch.nn.RMSNorm.
        attention: Class of the attention, called with embed_dim and num_heads: `MultiHeadAttention`
            or your own, with the same ``forward(x, mask=...)``.
        activation: Class of the activation in a block's feed-forward network, such as
            torch.nn.GELU.
        stem: Tokens that a convolution sees, an odd number; its output is added to the embeddings.
            0: none.
        patch: Neighbouring tokens that are joined to one before the blocks, for long texts; 1:
            none.
        pooling: How the tokens are pooled for the last layer: one or more of mean, max and
            attention.
        embedding_dropout: Probability of dropping a value of a token's embedding.
        position_dropout: Probability of dropping a value of the blocks' input, tokens plus
            positions.
        dropout: Probability of dropping a value on the residual branches of a block.
        feedforward_dropout: Probability of dropping a hidden unit of a block's feed-forward
            network.
        head_dropout: Probability of dropping a pooled value.
        word_dropout: Probability that a token is read as the unknown word in training.
        ngrams: Length of the longest n-gram whose class log-odds are added to the embeddings, see
            `NGramLogOdds`; 0: none.
        ngram_buckets: Number of hashes of n-grams, about as many as the training texts have.
        vocab_size: Token ids are below it; 0 is padding, 1 the unknown word. Taken from the data
            when left out.
        max_tokens: Tokens that are read at once. Taken from the data when left out.
        num_classes: Number of classes. Taken from the data when left out.

    Raises:
        UserError: If a value does not fit the others, or is neither set nor provided by the data.
    """

    parallel_plan = ParallelPlan(
        blocks=["blocks.*"],
        columns=["blocks.*.attention.queries_keys_values", "blocks.*.feedforward.0"],
        rows=["blocks.*.attention.output", "blocks.*.feedforward.3"],
        counts=["blocks.*.attention.num_heads"],
    )

    def __init__(
        self,
        *,
        embed_dim: PositiveInt = 96,
        num_layers: NonNegativeInt = 1,
        num_heads: PositiveInt = 4,
        dim_feedforward: PositiveInt = 192,
        positions: Literal["learned", "sinusoidal"] = "sinusoidal",
        norm: Literal["pre", "post"] = "pre",
        norm_class: Callable[[int], nn.Module] = nn.LayerNorm,
        attention: Callable[[int, int], nn.Module] = MultiHeadAttention,
        activation: Callable[[], nn.Module] = nn.GELU,
        stem: NonNegativeInt = 0,
        patch: PositiveInt = 1,
        pooling: tuple[Literal["mean", "max", "attention"], ...] = ("mean",),
        embedding_dropout: HalfOpenUnitInterval = 0.0,
        position_dropout: HalfOpenUnitInterval = 0.0,
        dropout: HalfOpenUnitInterval = 0.1,
        feedforward_dropout: HalfOpenUnitInterval = 0.0,
        head_dropout: HalfOpenUnitInterval = 0.0,
        word_dropout: HalfOpenUnitInterval = 0.0,
        ngrams: NonNegativeInt = 0,
        ngram_buckets: NumBuckets = 2**20,
        vocab_size: VocabSize | None = None,
        max_tokens: PositiveInt | None = None,
        num_classes: int | None = None,
    ) -> None:
        if vocab_size is None or max_tokens is None or num_classes is None:
            raise UserError(
                "model.network: vocab_size, max_tokens and num_classes are not all set, and the "
                "data does not provide them; set them or use TextData"
            )
        if embed_dim % num_heads:
            raise UserError(
                f"model.network.embed_dim: {embed_dim} is not valid; it must be divisible by "
                f"model.network.num_heads ({num_heads})"
            )
        if stem and stem % 2 == 0:
            raise UserError(
                f"model.network.stem: {stem} is not valid; it must be 0 or an odd number"
            )
        if not pooling or len(set(pooling)) < len(pooling):
            raise UserError(
                f"model.network.pooling: {pooling} is not valid; give one or more of mean, max and "
                "attention, each at most once"
            )
        super().__init__()
        self.vocab_size, self.max_tokens = vocab_size, max_tokens
        self.word_dropout = word_dropout
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=PADDING)
        self.embedding_dropout = nn.Dropout(embedding_dropout)
        self.ngrams = (
            NGramLogOdds(ngrams, ngram_buckets, num_classes, embed_dim) if ngrams else None
        )
        self.stem = ConvStem(embed_dim, stem) if stem else None
        self.patches = Patches(embed_dim, patch) if patch > 1 else None
        length = -(-max_tokens // patch)
        self.positions: Tensor
        if positions == "learned":
            self.positions = nn.Parameter(torch.randn(length, embed_dim) * 0.02)
        else:
            # The paper scales embeddings up to the sinusoids' size; here these are scaled down to
            # the embeddings'.
            table = sinusoidal_positions(length, embed_dim) * EMBEDDING_STD
            self.register_buffer("positions", table, persistent=False)
        self.position_dropout = nn.Dropout(position_dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                embed_dim,
                num_heads,
                dim_feedforward,
                dropout=dropout,
                feedforward_dropout=feedforward_dropout,
                norm=norm,
                norm_class=norm_class,
                attention=attention,
                activation=activation,
            )
            for _ in range(num_layers)
        )
        self.norm = norm_class(embed_dim) if norm == "pre" else nn.Identity()
        self.pooling = Pooling(embed_dim, pooling)
        self.head_dropout = nn.Dropout(head_dropout)
        self.head = nn.Linear(len(pooling) * embed_dim, num_classes)
        with torch.no_grad():
            self.embedding.weight.normal_(std=EMBEDDING_STD)[PADDING] = 0.0
            # Nearly zero logits: training starts from "all classes alike". Not quite zero, so that
            # the first step already moves everything before the head.
            self.head.weight.normal_(std=1e-3)
            self.head.bias.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Classify texts.

        Args:
            ids: Token ids with the padding behind the text, shape (batch, time), int64.

        Returns:
            Logits, shape (batch, classes).

        Raises:
            ValueError: If texts are longer than max_tokens.
        """
        if ids.shape[1] > self.max_tokens:
            raise ValueError(
                f"texts of {ids.shape[1]} tokens: the network takes {self.max_tokens} at most"
            )
        real = ids != PADDING
        # An empty text counts as one token of nothing: a mean or a softmax over no token at all
        # would not be a number.
        real = real | (torch.arange(ids.shape[1], device=ids.device) == 0)
        words = ids
        if self.training and self.word_dropout:
            dropped = torch.rand(ids.shape, device=ids.device) < self.word_dropout
            words = ids.masked_fill(dropped & (ids != PADDING), UNKNOWN)
        x = self.embedding_dropout(self.embedding(words))
        if self.ngrams is not None:
            x = x + self.ngrams(ids).masked_fill(~real[:, :, None], 0.0)
        if self.stem is not None:
            x = self.stem(x, real)
        if self.patches is not None:
            x, real = self.patches(x, real)
        x = self.position_dropout(x + self.positions[: x.shape[1]])
        for block in self.blocks:
            x = block(x, real)
        return self.head(self.head_dropout(self.pooling(self.norm(x), real)))
