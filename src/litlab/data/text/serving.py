"""Texts as a deployed model takes them: token ids."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litlab.data.metadata import ClassMetadata
from litlab.data.serving import BATCH, TIME, Serving, TensorSpec, class_outputs
from litlab.data.text.tokenizer import PADDING, UNKNOWN

TOKENIZER = "tokenizer.json"
_LONGEST = 8192  # tokens, where texts are read at both ends; what is between the ends of a longer one is left out


@dataclass(frozen=True)
class TextMetadata(ClassMetadata):
    """Metadata of texts.

    Args:
        tokenizer: The tokenizer as JSON.
        vocab_size: Upper bound of the vocabulary.
        max_tokens: Longest piece of a text that the model reads at once.
        long_texts: What happens to longer texts.
        table: How tables of texts are read: plain arguments of `read_rows`.
        generated: Whether the texts are made up.
    """

    tokenizer: str
    vocab_size: int
    max_tokens: int
    long_texts: Literal["truncate", "crop"]
    table: dict[str, Any]
    generated: bool


class TextServing(Serving):
    """Takes token ids, (batch, time), padded with 0 at the end.

    Where training cut long texts at random (``long_texts: crop``), the model reads the beginning and the end of a text.
    An exported graph can't choose by the length, so it always reads both, which are the same for a short text.

    Args:
        metadata: Metadata of the checkpoint.
    """

    kind = "texts"

    def __init__(self, metadata: TextMetadata) -> None:
        self.both_ends = metadata.long_texts == "crop"
        longest = max(_LONGEST, 4 * metadata.max_tokens) if self.both_ends else metadata.max_tokens
        what = f"token ids of {TOKENIZER}, 0 behind the end of a text; an empty text is one {UNKNOWN}"
        outputs = class_outputs(metadata.class_names)
        super().__init__([TensorSpec("ids", "int64", (BATCH, TIME), what)], outputs, {TIME: longest})
        self.metadata = metadata

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        return {"ids": F.pad(raw[0], (0, self.metadata.max_tokens)) if self.both_ends else raw[0]}

    def raw(self, batch: Any) -> tuple[Tensor, ...]:
        inputs = batch if isinstance(batch, dict) else batch[0]
        ids, most = inputs["ids"], self.most[TIME]
        if ids.shape[1] > most:
            ends = [ends_of(row[row != PADDING], most) for row in ids]
            ids = nn.utils.rnn.pad_sequence(ends, batch_first=True, padding_value=PADDING)
        return (ids,)

    def facts(self) -> dict[str, Any]:
        read = {"max_tokens": self.metadata.max_tokens, "both_ends": self.both_ends}
        return {"class_names": self.metadata.class_names, **read, "padding": PADDING}

    def files(self) -> dict[str, str]:
        return {TOKENIZER: self.metadata.tokenizer}

    def example(self) -> tuple[Tensor, ...]:
        """Return the first words of the vocabulary, in two texts of different length."""
        size = min(8, self.metadata.max_tokens)
        ids = (torch.arange(2 * size) % max(1, self.metadata.vocab_size - 1) + UNKNOWN).view(2, size)
        ids[1, (size + 1) // 2 :] = PADDING
        return (ids,)


def ends_of(ids: Tensor, most: int) -> Tensor:
    """Return the tokens of a text, shape (time,), of a longer one only so many, half of them from its end."""
    return ids if len(ids) <= most else torch.cat([ids[: most // 2], ids[-(most // 2) :]])
