"""Texts, as ids of their tokens."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from litlab.commands.serve.body import Given, check_characters
from litlab.commands.serve.limits import CHARACTERS
from litlab.commands.serve.readers.reader import Arrays, Asked, Reader, class_answer
from litlab.commands.serve.refusal import Refusal
from litlab.data.serving import TIME
from litlab.data.text import PADDING, UNKNOWN
from litlab.data.text.serving import TOKENIZER
from litlab.data.text.tokenizer import cut_text


class TextReader(Reader):
    """Splits a text as ``predict`` does, and leaves out what the model does not read of a long one."""

    def __init__(self, manifest: Mapping[str, Any], text_file: Callable[[str], str]) -> None:
        super().__init__(manifest, text_file)
        from tokenizers import Tokenizer

        self.longest = manifest["limits"][TIME]
        self.tokenizer: Tokenizer = Tokenizer.from_str(text_file(TOKENIZER))

    def read(self, given: Given) -> Asked:
        """Turn a text into one sample; the number of its tokens is the context."""
        given.only("text")
        text = given.text("text")
        if text is None and given.file is not None:
            try:
                text = given.file.removeprefix(b"\xef\xbb\xbf").decode()
            except UnicodeDecodeError as error:
                raise Refusal(422, f"file: it is not UTF-8 (byte {error.start})") from None
            check_characters("file", text)
        if text is None:
            raise Refusal(422, "there is no text; send it as 'text'")
        if len(text) > CHARACTERS:
            raise Refusal(413, f"text: it has {len(text):,} characters; send at most {CHARACTERS:,}")
        if not (text := text.strip()):
            raise Refusal(422, "text: it is empty")
        (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids = torch.tensor(encoding.ids or [UNKNOWN])  # such as a text of nothing but <br />
        cut = cut_text(ids, self.longest, self.facts["both_ends"])
        return Asked({"ids": cut.numpy()[None]}, len(ids))

    def stack(self, batch: Sequence[Asked]) -> Arrays:
        """Join texts, padded to the longest."""
        ids = [asked.arrays["ids"][0] for asked in batch]
        stacked = np.full((len(ids), max(map(len, ids))), PADDING, dtype=np.int64)
        for row, own in zip(stacked, ids, strict=True):
            row[: len(own)] = own
        return {"ids": stacked}

    def answer(self, outputs: Arrays, asked: Asked) -> dict[str, Any]:
        """Return class and probabilities, how many tokens the text has, and how many of them were read."""
        tokens, most = asked.context, self.facts["max_tokens"] * (2 if self.facts["both_ends"] else 1)
        read = {"tokens": tokens, "tokens_read": min(tokens, most)}
        return {**class_answer(self.facts["class_names"], outputs["probabilities"][0]), **read}
