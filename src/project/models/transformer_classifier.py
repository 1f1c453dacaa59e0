"""The text experiment's model."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from litlab.data import PADDING
from litlab.errors import UserError
from litlab.tasks import Classifier
from litlab.types import HalfOpenUnitInterval, NonNegativeInt, PositiveInt, bounded
from project.networks.attention import MultiHeadAttention
from project.networks.text_transformer import TextTransformer

if TYPE_CHECKING:
    VocabSize = int
else:
    VocabSize = bounded(int, ">= 2")  # padding and the unknown word


class TransformerClassifier(Classifier):
    """A `Classifier` of texts with the network `TextTransformer`.

    Inputs are {"ids": token ids of shape (batch, time), 0 is padding and stands behind the text}.
    The default values are a plain Transformer encoder; each option beyond it is one setting.

    Training takes max_tokens tokens at most. In evaluation and prediction the ends of a longer text
    are read, its first and its last max_tokens tokens, and their logits averaged.

    Args:
        embed_dim: Size of a token's vector.
        num_layers: Number of encoder blocks.
        num_heads: Attention heads of a block; they share embed_dim equally.
        dim_feedforward: Hidden units of a block's feed-forward network.
        positions: learned, or the fixed sinusoidal ones of Vaswani et al. 2017 (arXiv:1706.03762).
        norm: Normalisation before (pre) or after (post) the parts of a block.
        norm_class: Class of the norms, called with embed_dim, such as torch.nn.LayerNorm or
            torch.nn.RMSNorm.
        attention: Class of the attention, called with embed_dim and num_heads: `MultiHeadAttention`
            or one of your own with a ``forward(x, mask=...)`` like its.
        activation: Class of the activation in a block's feed-forward network, such as
            torch.nn.GELU.
        stem: Tokens that a convolution sees whose output is added to the embeddings, an odd number.
            0: none.
        patch: Neighbouring tokens that are joined to one before the blocks, for long texts. 1:
            none.
        pooling: What of all tokens goes into the last layer, one or several of mean, max and
            attention.
        embedding_dropout: Probability of dropping a value of a token's embedding.
        position_dropout: Probability of dropping a value of what goes into the blocks: tokens plus
            positions.
        dropout: Probability of dropping a value that a part of a block adds.
        feedforward_dropout: Probability of dropping a hidden unit of a block's feed-forward
            network.
        head_dropout: Probability of dropping a value before the last layer.
        word_dropout: Probability that a token is read as the unknown word in training.
        vocab_size: Token ids are below it. Taken from the data when left out.
        max_tokens: Tokens that are read at once. Taken from the data when left out.
        num_classes: Number of classes. Taken from the data when left out.
        **settings: members, label_smoothing, metrics, optimizer, schedule and param_groups, as of
            `Classifier`.

    Raises:
        UserError: If a value does not go with the others, or is neither set nor told by the data.
    """

    data_facts = ("num_classes", "vocab_size", "max_tokens", "padding")
    padding = PADDING  # a pre-trained tokenizer may have another one

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
        vocab_size: VocabSize | None = None,
        max_tokens: PositiveInt | None = None,
        num_classes: int | None = None,
        **settings: Any,
    ) -> None:
        if vocab_size is None or max_tokens is None or num_classes is None:
            raise UserError(
                "model: vocab_size, max_tokens and num_classes are not all set, and the data does "
                "not provide them; set them or use TextData"
            )
        if embed_dim % num_heads:
            raise UserError(
                f"model.embed_dim: {embed_dim} is not valid; it must be divisible by "
                f"model.num_heads ({num_heads})"
            )
        if stem and stem % 2 == 0:
            raise UserError(
                f"model.stem: {stem} is not valid; it must be 0 or odd, so that it has a middle"
            )
        if not pooling or len(set(pooling)) < len(pooling):
            raise UserError("model.pooling: give one or more of mean, max and attention, each once")
        network = partial(
            TextTransformer, vocab_size, max_tokens, num_classes,
            embed_dim=embed_dim, num_layers=num_layers, num_heads=num_heads,
            dim_feedforward=dim_feedforward, positions=positions, norm=norm, norm_class=norm_class,
            attention=attention, activation=activation, stem=stem, patch=patch, pooling=pooling,
            embedding_dropout=embedding_dropout, position_dropout=position_dropout, dropout=dropout,
            feedforward_dropout=feedforward_dropout, head_dropout=head_dropout,
            word_dropout=word_dropout,
        )  # fmt: skip
        super().__init__(network, num_classes=num_classes, **settings)
        self.max_tokens = max_tokens

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Logits of shape (batch, classes) from token ids.

        Raises:
            ValueError: If a text of a training batch is longer than max_tokens.
        """
        ids = inputs["ids"]
        if self.training or ids.shape[1] <= self.max_tokens:
            return self.network(ids)
        # Where each text's last window begins, and from there the row of each of its tokens; the
        # first window again where the text is no longer than that.
        start = ((ids != PADDING).sum(dim=1, keepdim=True) - self.max_tokens).clamp(min=0)
        rows = start + torch.arange(self.max_tokens, device=ids.device)
        texts = torch.arange(ids.shape[0], device=ids.device)[:, None]
        return (self.network(ids[:, : self.max_tokens]) + self.network(ids[texts, rows])) / 2
