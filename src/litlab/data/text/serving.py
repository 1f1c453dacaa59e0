"""Texts as a deployed model takes them: token ids."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from litlab.data.serving import BATCH, TIME, Sample, Serving, TensorSpec
from litlab.data.target_metadata import TargetMetadata
from litlab.data.text.tokenizer import UNKNOWN, cut_text, encode
from litlab.errors import UserError

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
    """

    tokenizer: str
    vocab_size: int
    padding: int
    max_tokens: int
    long_texts: Literal["truncate", "crop"]

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

    kind, field, metadata_type = "texts", "text", TextMetadata
    text_files = {"tokenizer": TOKENIZER}  # noqa: RUF012 - as of `Serving`

    def __init__(self, metadata: TextMetadata) -> None:
        meaning = (
            f"token ids of {TOKENIZER}, {metadata.padding} behind the end of a text; an empty text "
            f"is one {UNKNOWN}"
        )
        inputs = [TensorSpec("ids", "int64", (BATCH, TIME), meaning)]
        super().__init__(inputs, [metadata.target.spec()], {TIME: metadata.longest})
        self.metadata = metadata

    def encode(self, *raw: Tensor) -> dict[str, Tensor]:
        (ids,) = raw
        metadata = self.metadata
        if not metadata.both_ends:
            return {"ids": ids}
        # The network reads both ends of what is longer than `max_tokens`, and so of each text here:
        # a branch by the length could not be exported
        return {"ids": F.pad(ids, (0, metadata.max_tokens), value=metadata.padding)}

    def read(self, sent: Any) -> Sample:
        """Read a text, of which a long one is cut; the context is the number of its tokens."""
        # JSON can spell halves of characters, such as "\ud800": `encode` refuses them
        content = sent.encode() if isinstance(sent, str) else sent
        if not isinstance(content, bytes) or not content.strip():
            raise UserError("text: it is empty, or no text; send one")
        # As a file's cells are read
        metadata = self.metadata
        text = unicodedata.normalize("NFC", content.decode("utf-8-sig")).strip()
        ids = encode(metadata.tokenizer, [text])["ids"].long()
        context = {"tokens": len(ids), "tokens_read": min(len(ids), metadata.longest)}
        return Sample([cut_text(ids, metadata.longest, metadata.both_ends).numpy()[None]], context)

    def sample_request(self) -> str:
        return "a text of a few words"

    def stack(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return texts padded to the longest."""
        texts = [torch.from_numpy(sample.inputs[0][0]) for sample in samples]
        padding = self.metadata.padding
        return [pad_sequence(texts, batch_first=True, padding_value=padding).numpy()]
