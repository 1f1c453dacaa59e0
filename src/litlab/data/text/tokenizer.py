"""From texts to token ids, by the `tokenizers` library."""

import json
import os
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from litlab.util.progress import progress_bar

Kind = Literal["word", "bpe"]

PADDING, UNKNOWN = 0, 1
_WORDS = r"\w+(?:'\w+)*|[^\w\s]"  # "don't" is one word; every punctuation mark is a token
_SPECIAL = ["[PAD]", "[UNK]"]
_CHUNK = 1000  # texts at a time, and between two steps of the progress bar

# On all cores: the library would warn at every later fork else. The workers of a loader don't use it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")


def train_tokenizer(texts: list[str], kind: Kind, vocab_size: int) -> str:
    """Train a tokenizer; both kinds take texts in lower case and ``<br />`` for a space.

    Args:
        texts: The training texts.
        kind: `word`: words and punctuation marks that come at least twice; others are unknown. `bpe`: byte-level
            byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909), which knows no unknown words.
        vocab_size: Most entries of the vocabulary, padding (id 0) and unknown (id 1) included.

    Returns:
        The tokenizer as JSON, which `Tokenizer.from_str` reads.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    options = {
        "vocab_size": vocab_size, "min_frequency": 2, "special_tokens": _SPECIAL, "show_progress": False,
    }  # fmt: skip
    if kind == "word":
        tokenizer = Tokenizer(models.WordLevel(unk_token=_SPECIAL[UNKNOWN]))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "removed", invert=True)
        trainer = trainers.WordLevelTrainer(**options)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **options)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(r"<br\s*/?>"), " "), normalizers.NFC(), normalizers.Lowercase()]
    )
    tokenizer.train_from_iterator(texts, trainer)
    # A text that spells "[PAD]" must not become padding: the library finds "added" tokens in texts, others not.
    plain = json.loads(tokenizer.to_str())
    plain["added_tokens"] = []
    return json.dumps(plain, ensure_ascii=False)


def encode(tokenizer: str, texts: list[str]) -> tuple[Tensor, Tensor]:
    """Encode texts, each to at least one token.

    Args:
        tokenizer: What `train_tokenizer` returned.
        texts: The texts.

    Returns:
        Ids of all texts one after the other, int32 of shape (tokens,), and where each starts, int64 of shape
        (texts + 1,); the last entry is the number of tokens.
    """
    from tokenizers import Tokenizer

    encoder: Tokenizer = Tokenizer.from_str(tokenizer)
    ids: list[Tensor] = []
    lengths = [0]
    for start in progress_bar(range(0, len(texts), _CHUNK), desc="tokenising texts", unit="k"):
        encodings = encoder.encode_batch_fast(texts[start : start + _CHUNK], add_special_tokens=False)
        tokens = [encoding.ids or [UNKNOWN] for encoding in encodings]  # such as a text of nothing but <br />
        lengths += map(len, tokens)
        ids.append(torch.tensor(list(chain.from_iterable(tokens)), dtype=torch.int32))
    return torch.cat(ids), torch.tensor(lengths).cumsum(0)
