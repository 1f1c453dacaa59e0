"""From texts to token ids, by the `tokenizers` library."""

import json
import os
from functools import lru_cache
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from litlab.errors import UserError
from litlab.nn.pretrained_text import load_pretrained

KINDS = ("word", "bpe")  # that are trained

PADDING, UNKNOWN = 0, 1
_WORDS = r"\w+(?:'\w+)*|[^\w\s]"  # "don't" is one word; every punctuation mark is a token

# On all cores: the library would warn at every later fork else. The workers of a loader don't use
# it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def load_tokenizer(name: str) -> dict[str, Any]:
    """Load the tokenizer of a model of transformers, by its folder or its name.

    Returns:
        ``tokenizer`` as JSON, its ``vocab_size``, and the id of ``padding``.
    """
    model = load_pretrained("AutoTokenizer", name, "data.tokenizer")
    if model.pad_token_id is None:
        raise UserError(
            f"data.tokenizer: {name} has no token for padding; use an encoder, such as BERT"
        )
    # Texts are cut and padded batch by batch; special tokens such as [CLS] are added
    backend = model.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return {"tokenizer": backend.to_str(), "vocab_size": len(model), "padding": model.pad_token_id}


def train_tokenizer(texts: list[str], kind: str, vocab_size: int) -> str:
    """Train a tokenizer; both kinds take texts in lower case and ``<br />`` for a space.

    Args:
        texts: The training texts.
        kind: `word`: words and punctuation marks that come at least twice; others are unknown.
            `bpe`: byte-level byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909), which
            knows no unknown words.
        vocab_size: Most entries of the vocabulary, padding (id 0) and unknown (id 1) included.

    Returns:
        The tokenizer as JSON, which `Tokenizer.from_str` reads.
    """
    from tokenizers import (
        ByteLevelBPETokenizer,
        Regex,
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    options: Any = {
        "vocab_size": vocab_size, "min_frequency": 2, "special_tokens": ["[PAD]", "[UNK]"],
        "show_progress": False,
    }  # fmt: skip
    # Reviews of IMDB have line breaks in HTML
    spaces = normalizers.Replace(Regex(r"<br\s*/?>"), " ")
    normalizer = normalizers.Sequence([spaces, normalizers.NFC(), normalizers.Lowercase()])
    if kind == "bpe":
        tokenizer = ByteLevelBPETokenizer(add_prefix_space=True)
        tokenizer.normalizer = normalizer
        tokenizer.train_from_iterator(texts, **options)
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "removed", invert=True)
        tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(**options))
    # A text that spells "[PAD]" must not become padding: the library finds "added" tokens in texts,
    # others not.
    plain = json.loads(tokenizer.to_str())
    plain["added_tokens"] = []
    return json.dumps(plain, ensure_ascii=False)


def encode(tokenizer: str, texts: list[str]) -> dict[str, Tensor]:
    """Encode texts, each to at least one token.

    Args:
        tokenizer: What `train_tokenizer` returned.
        texts: The texts.

    Returns:
        ``ids`` of all texts one after the other, int32 of shape (tokens,), and their ``lengths``,
        int64 of shape (texts,).
    """
    # The fast variant leaves out where each token is in the text
    encodings = _parse_tokenizer(tokenizer).encode_batch_fast(texts)
    # A text of nothing but <br /> has no tokens
    ids = [encoding.ids or [UNKNOWN] for encoding in encodings]
    flat = torch.tensor(list(chain.from_iterable(ids)), dtype=torch.int32)
    return {"ids": flat, "lengths": torch.tensor(list(map(len, ids)))}


@lru_cache(maxsize=1)  # a server reads one text after the other
def _parse_tokenizer(tokenizer: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(tokenizer)


def cut_text(ids: Tensor, most: int, both_ends: bool) -> Tensor:
    """Return what evaluation reads of a text.

    Args:
        ids: All its tokens, shape (time,).
        most: How many are read.
        both_ends: Whether half of them are from the end of a longer text, instead of all from its
            beginning.
    """
    if both_ends and len(ids) > most:
        return torch.cat([ids[: most // 2], ids[-(most // 2) :]])
    return ids[:most]
