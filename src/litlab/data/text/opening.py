"""Texts as a model reads them: by the tokenizer, the counts and the settings of the checkpoint where there is one."""

from typing import Any

from litlab.data.text.memory import StoredTexts
from litlab.data.text.ngram_cache import load_evidence
from litlab.data.text.ngram_features import NgramCounts
from litlab.data.text.stored import Stored
from litlab.data.text.tokenizer import encode
from litlab.errors import UserError


def open_split(stored: Stored, split: str, state: dict[str, Any], orders: int) -> StoredTexts:
    """Open the texts of a split.

    Args:
        stored: The cache.
        split: "train", "val" or "test".
        state: What `TextData.state_dict` returns.
        orders: Longest n-gram of the evidence in the cache.

    Raises:
        UserError: The checkpoint's evidence doesn't go with the training texts at hand.
    """
    own = state["tokenizer"] == stored.tokenizer
    if own:
        ids, offsets = stored.array(split, "ids"), stored.array(split, "offsets")
    else:
        ids, offsets = encode(state["tokenizer"], stored.texts(split))
    evidence = None
    if state["ngrams"] and split != "train":
        evidence = NgramCounts.from_state_dict(state["counts"]).evidence(ids, offsets)
    elif state["ngrams"]:
        if not own or orders != state["ngrams"]:
            raise UserError(
                "data: the checkpoint was trained with n-gram evidence from other texts or settings, which can't "
                "go on with these; use the data and data settings of its run"
            )
        evidence = load_evidence(stored.folder, orders)
    longest = None if state["long_texts"] == "crop" and split != "train" else state["max_tokens"]
    return StoredTexts(ids, offsets, stored.array(split, "labels"), evidence, longest)


def open_input(texts: list[str], state: dict[str, Any]) -> StoredTexts:
    """Encode texts to predict.

    Args:
        texts: The texts.
        state: What `TextData.state_dict` returns.
    """
    ids, offsets = encode(state["tokenizer"], texts)
    counts = state["counts"]
    evidence = NgramCounts.from_state_dict(counts).evidence(ids, offsets) if counts else None
    longest = None if state["long_texts"] == "crop" else state["max_tokens"]
    return StoredTexts(ids, offsets, None, evidence, longest)
