"""Two causal networks: the Transformer layers of the text experiment, and any causal model of
transformers.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.errors import UserError
from litlab.nn.pretrained_text import load_pretrained
from litlab.types import HalfOpenUnitInterval, PositiveInt
from project.networks.attention import EncoderBlock, MultiHeadAttention, causal_mask


class CausalAttention(MultiHeadAttention):
    """Attention of each token to itself and those before it."""

    def forward(
        self, x: Tensor, context: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        return super().forward(x, mask=causal_mask(x.shape[1], x.shape[1], x.device))


class CausalTransformer(nn.Module):
    """Embeddings, a convolution over the last tokens, positions and causal blocks (Radford et al.
    2019).

    Without the convolution, attention first has to learn to find the last letters, which takes
    longer.

    Args:
        embed_dim: Size of a token's vector.
        stem: Tokens that the convolution sees.
        num_layers: Number of blocks.
        num_heads: Attention heads of a block; they share embed_dim equally.
        dropout: Probability of dropping a value of an embedding, and of what a block adds.
        vocab_size: Token ids are below it. Taken from the data when left out.
        context_length: Tokens that are read at once. Taken from the data when left out.
    """

    def __init__(
        self,
        embed_dim: PositiveInt = 128,
        stem: PositiveInt = 6,
        num_layers: PositiveInt = 3,
        num_heads: PositiveInt = 4,
        dropout: HalfOpenUnitInterval = 0.1,
        vocab_size: int | None = None,
        context_length: int | None = None,
    ) -> None:
        super().__init__()
        if vocab_size is None or context_length is None:
            raise UserError("model.network: vocab_size or context_length is not set; use TextFile")
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.stem = nn.Conv1d(embed_dim, embed_dim, stem)
        self.positions = nn.Parameter(0.02 * torch.randn(context_length, embed_dim))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                embed_dim, num_heads, 4 * embed_dim, dropout=dropout, attention=CausalAttention
            )
            for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.head.weight = self.embedding.weight  # tied (Press & Wolf 2017, arXiv:1608.05859)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits of the next token at each token, (batch, time, vocabulary), of ids, int64
        (batch, time).
        """
        x = self.embedding(ids)
        before = F.pad(x.mT, (self.stem.kernel_size[0] - 1, 0))
        x = x + F.gelu(self.stem(before)).mT
        x = self.dropout(x + self.positions[: ids.shape[1]])
        real = torch.ones_like(ids, dtype=torch.bool)
        for block in self.blocks:
            x = block(x, real)
        return self.head(self.norm(x))


class PretrainedCausal(nn.Module):
    """Any causal model of transformers, such as GPT-2; its tokenizer is data.tokenizer.

    Args:
        name: A folder with the model, or its name on huggingface.co. Only weights in the
            safetensors format are read, and no code.
        weights: null means random weights; only the model's config is read.
        context_length: Tokens that are read at once. Taken from the data when left out.
    """

    def __init__(
        self,
        name: str,
        weights: Literal["pretrained"] | None = "pretrained",
        context_length: int | None = None,
    ) -> None:
        super().__init__()
        config: Any = load_pretrained("AutoConfig", name, "model.network.name")
        longest = config.max_position_embeddings
        if context_length is not None and context_length > longest:
            raise UserError(
                f"data.context_length: {context_length} is more than the {longest} tokens that "
                f"{name} can read; lower it"
            )
        if weights is None:
            from transformers import AutoModelForCausalLM

            self.model: Any = AutoModelForCausalLM.from_config(config)
        else:
            options = {"use_safetensors": True}
            self.model = load_pretrained(
                "AutoModelForCausalLM", name, "model.network.name", **options
            )
        self.model.train()

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits of the next token at each token, (batch, time, vocabulary)."""
        return self.model(input_ids=ids).logits
