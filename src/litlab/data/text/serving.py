"""Texts as a deployed model takes them: token ids."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from litlab.data.serving import BATCH, TIME, Serving, TensorSpec
from litlab.data.target import TargetMetadata
from litlab.data.text.tokenizer import UNKNOWN

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, kw_only=True)
class TextMetadata(TargetMetadata):
    """Metadata of texts.

    Args:
        tokenizer: The tokenizer as JSON.
        vocab_size: Upper bound of the vocabulary.
        padding: Token id behind the end of a text.
        max_tokens: Longest piece of a text that the model reads at once.
        long_texts: What happens to longer texts.
        generated: Whether the texts are made up.
    """

    tokenizer: str
    vocab_size: int
    padding: int
    max_tokens: int
    long_texts: Literal["truncate", "crop"]
    generated: bool

    @property
    def both_ends(self) -> bool:
        """Whether beginning and end of a longer text are read in evaluation."""
        return self.long_texts == "crop"

    @property
    def longest(self) -> int:
        """Most tokens of a text that count in evaluation."""
        return 2 * self.max_tokens if self.both_ends else self.max_tokens


class TextServing(Serving):
    """Takes token ids, (batch, time), padded at the end.

    Where training cut long texts at random (``long_texts: crop``), the model reads the beginning
    and the end of a text. An exported graph can't choose by the length, so it always reads both,
    which are the same for a short text.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "texts"

    def __init__(self, metadata: TextMetadata) -> None:
        what = (
            f"token ids of {TOKENIZER}, {metadata.padding} behind the end of a text; an empty text "
            f"is one {UNKNOWN}"
        )
        inputs = [TensorSpec("ids", "int64", (BATCH, TIME), what)]
        super().__init__(inputs, [metadata.target.spec()], {TIME: metadata.longest})
        self.metadata = metadata

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        (ids,) = raw
        known = self.metadata
        return {
            "ids": F.pad(ids, (0, known.max_tokens), value=known.padding)
            if known.both_ends
            else ids
        }

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        inputs = batch if isinstance(batch, dict) else batch[0]
        return (inputs["ids"],)

    def facts(self) -> dict[str, Any]:
        known = self.metadata
        return {
            "class_names": known.class_names,
            "target": known.target.state_dict(),
            "max_tokens": known.max_tokens,
            "both_ends": known.both_ends,
            "padding": known.padding,
        }

    def files(self) -> dict[str, str]:
        return {TOKENIZER: self.metadata.tokenizer}

    def example(self) -> tuple[Tensor, ...]:
        """Return the first words of the vocabulary, in two texts, the second of which ends in
        padding.
        """
        size = min(8, self.metadata.max_tokens)
        ids = torch.arange(2 * size).flip(0).clamp(max=self.metadata.vocab_size - 1)
        return (ids.view(2, size),)
