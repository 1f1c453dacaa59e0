"""Text encoders of Hugging Face's transformers, and their tokenizers."""

import math
from importlib import import_module
from typing import Any, Literal

from torch import Tensor, nn

from litlab.errors import UserError, first_line
from litlab.types import HalfOpenUnitInterval


class PretrainedText(nn.Module):
    """A pre-trained text encoder, the mean of its last states over the text, and a linear head.

    It takes any encoder of transformers with a padding token, such as BERT, DistilBERT, RoBERTa or
    ModernBERT. The data must have its tokenizer: set data.tokenizer to the same name.

    Args:
        name: A folder with the model, or its name on huggingface.co, from which it is downloaded
            once. Only weights in the safetensors format are read, and no code.
        weights: null means random weights; only the model's config is read.
        dropout: Probability of dropping a value before the head.
        vocab_size: Token ids are below it; taken from the data.
        longest: Tokens of the longest text; taken from the data.
        padding: Token id behind the end of a text; taken from the data.
        num_classes: Number of logits; taken from the data.

    Raises:
        UserError: The model can't be loaded, or is not for these tokens.
    """

    def __init__(
        self,
        name: str,
        *,
        weights: Literal["pretrained"] | None = "pretrained",
        dropout: HalfOpenUnitInterval = 0.1,
        vocab_size: int | None = None,
        longest: int | None = None,
        padding: int | None = None,
        num_classes: int | None = None,
    ) -> None:
        super().__init__()
        if vocab_size is None or longest is None or padding is None or num_classes is None:
            raise UserError(
                "model.network: PretrainedText does not know the tokens of the data; use TextData"
            )
        config = load_pretrained("AutoConfig", name, "model.network.name")
        if config.is_encoder_decoder:
            raise UserError(f"model.network.name: {name} has a decoder, too; name an encoder alone")
        if weights is None:
            self.encoder = import_module("transformers").AutoModel.from_config(config)
        else:
            self.encoder = load_pretrained(
                "AutoModel", name, "model.network.name", use_safetensors=True
            )
        limit = count_positions(self.encoder)
        if vocab_size > config.vocab_size or longest > limit:
            raise UserError(
                f"model.network.name: {name} takes {config.vocab_size:,} different tokens and "
                f"texts of up to {limit:,}, but the data has {vocab_size:,} and {longest:,}; set "
                "data.tokenizer to the same name, and lower data.max_tokens"
            )
        self.encoder.train()
        self.encoder.pooler = None  # BERT's, which nothing would train
        self.padding = padding
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(config.hidden_size, num_classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits, (batch, classes), of token ids with the padding behind the text, int64
        (batch, time).
        """
        real = ids != self.padding
        states = self.encoder(input_ids=ids, attention_mask=real.long()).last_hidden_state
        weights = real.unsqueeze(-1).to(states)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return self.head(self.dropout(mean))


def count_positions(encoder: Any) -> float:
    """Return how many tokens of a text an encoder reads at most."""
    # Of RoBERTa and its like the positions up to that of the padding stand for no token
    for name, part in encoder.named_modules():
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
            return part.num_embeddings - part.padding_idx - 1
    # Those with relative positions alone have no limit: XLNet says -1, others nothing
    limit = getattr(encoder.config, "max_position_embeddings", -1)
    return limit if limit > 0 else math.inf


def load_pretrained(kind: str, name: str, setting: str, **options: Any) -> Any:
    """Load a part of a pre-trained model.

    Args:
        kind: Class of transformers, such as AutoTokenizer.
        name: Folder, or name on huggingface.co.
        setting: Where the name comes from, for messages.
        **options: Of ``from_pretrained``.
    """
    try:
        return getattr(import_module("transformers"), kind).from_pretrained(
            name, trust_remote_code=False, **options
        )
    except ModuleNotFoundError as error:
        raise UserError(
            f"{setting}: it needs {error.name}; pip install -e '.[pretrained]'"
        ) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"{setting}: {name} can't be loaded ({first_line(error)}); name another one"
        ) from error
