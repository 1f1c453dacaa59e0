import json

import pytest
import torch
from tokenizers import Tokenizer

from litlab.data.text.tokenizer import cut_text, encode, train_tokenizer

TEXTS = ["The cat's mat, the cat's hat!", "A cat<br />and a dog.<br/>Don't!", "the dog don't"]


def tokens(tokenizer, text):
    ids = encode(tokenizer, [text])["ids"].tolist()
    return [Tokenizer.from_str(tokenizer).id_to_token(i) for i in ids]


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
    ids = encode(tokenizer, TEXTS)["ids"]
    assert ids.max() < size
    assert ids.min() > 0


def test_flat_ids_and_lengths():
    tokenizer = train_tokenizer(TEXTS, "word", 100)
    encoded = encode(tokenizer, [*TEXTS, "", "<br />"])
    ids, lengths = encoded["ids"], encoded["lengths"]
    assert (ids.dtype, lengths.dtype) == (torch.int32, torch.int64)
    texts = [some.tolist() for some in ids.split(lengths.tolist())]
    assert texts[:3] == [encode(tokenizer, [text])["ids"].tolist() for text in TEXTS]
    assert texts[3:] == [[1], [1]]  # a text without tokens is one unknown word
    many = encode(tokenizer, TEXTS * 700)  # more than one chunk
    assert many["ids"].tolist() == [*texts[0], *texts[1], *texts[2]] * 700
    assert len(many["lengths"]) == 2100


def test_what_is_read_of_a_long_text():
    ids = torch.arange(10)
    assert cut_text(ids, 4, both_ends=True).tolist() == [0, 1, 8, 9]
    assert cut_text(ids, 4, both_ends=False).tolist() == [0, 1, 2, 3]
    assert cut_text(ids[:3], 4, both_ends=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_no_text_can_spell_padding(kind):
    tokenizer = train_tokenizer([*TEXTS, "[PAD] [UNK] [PAD]"] * 2, kind, 400)
    ids = encode(tokenizer, ["[PAD]", "x[UNK][PAD]"])["ids"]
    assert ids.all()
    assert json.loads(tokenizer)["added_tokens"] == []
