import json

import pytest
import torch
from tokenizers import Tokenizer

from litlab.data.text.tokenizer import encode, train_tokenizer

TEXTS = ["The cat's mat, the cat's hat!", "A cat<br />and a dog.<br/>Don't!", "the dog don't"]


def tokens(tokenizer, text):
    ids, _ = encode(tokenizer, [text])
    return [Tokenizer.from_str(tokenizer).id_to_token(i) for i in ids.tolist()]


def test_words():
    tokenizer = train_tokenizer(TEXTS, "word", 100)
    vocabulary = Tokenizer.from_str(tokenizer).get_vocab()
    assert vocabulary["[PAD]"] == 0
    assert vocabulary["[UNK]"] == 1
    assert set(vocabulary) == {"[PAD]", "[UNK]", "the", "cat's", "a", "dog", "don't", "!"}  # twice or more
    assert tokens(tokenizer, "THE<br>dog<br />, Don't!") == ["the", "dog", "[UNK]", "don't", "!"]


@pytest.mark.parametrize(("kind", "size"), [("word", 4), ("bpe", 300)])
def test_size_is_a_bound(kind, size):
    tokenizer = train_tokenizer([f"{text} many words of some kind, {text[::-1]} " * 3 for text in TEXTS], kind, size)
    vocabulary = Tokenizer.from_str(tokenizer).get_vocab()
    assert sorted(vocabulary.values()) == list(range(size))
    ids, _ = encode(tokenizer, TEXTS)
    assert ids.max() < size
    assert ids.min() > 0


def test_flat_ids_and_offsets():
    tokenizer = train_tokenizer(TEXTS, "word", 100)
    ids, offsets = encode(tokenizer, [*TEXTS, "", "<br />"])
    assert (ids.dtype, offsets.dtype) == (torch.int32, torch.int64)
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    for text, start, end in zip(TEXTS, offsets, offsets[1:], strict=False):
        assert ids[start:end].tolist() == encode(tokenizer, [text])[0].tolist()
    assert ids[offsets[3] :].tolist() == [1, 1]  # a text without tokens is one unknown word
    many, ends = encode(tokenizer, TEXTS * 700)  # more than one chunk
    assert many.tolist() == encode(tokenizer, TEXTS)[0].tolist() * 700
    assert len(ends) == 2101


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_no_text_can_spell_padding(kind):
    tokenizer = train_tokenizer([*TEXTS, "[PAD] [UNK] [PAD]"] * 2, kind, 400)
    ids, _ = encode(tokenizer, ["[PAD]", "x[UNK][PAD]"])
    assert ids.all()
    assert json.loads(tokenizer)["added_tokens"] == []
