import pytest
import torch
from tokenizers import Tokenizer

from litlab.data.text.tokenizer import encode, train_tokenizer

TEXTS = ["The cat's mat, the cat's hat!", "A cat<br />and a dog.<br/>Don't!", "the dog don't"]


def test_words():
    tokenizer = train_tokenizer(TEXTS, "word", 100)
    encoded = encode(tokenizer, ["THE<br>dog<br />, Don't!", "", "<br />"])
    assert Tokenizer.from_str(tokenizer).get_vocab() == {
        word: number for number, word in enumerate(["[PAD]", "[UNK]", "the", "!", "a", "cat's", "dog", "don't"])
    }  # twice or more
    assert encoded["ids"].tolist() == [2, 6, 1, 7, 3, 1, 1]  # a text without tokens is one unknown word
    assert encoded["lengths"].tolist() == [5, 1, 1]
    assert (encoded["ids"].dtype, encoded["lengths"].dtype) == (torch.int32, torch.int64)


@pytest.mark.parametrize(("kind", "size"), [("word", 4), ("bpe", 300)])
def test_size_is_a_bound_and_no_text_can_spell_padding(kind, size):
    texts = [f"{text} many words of some kind, {text[::-1]} [PAD] [UNK]" * 3 for text in TEXTS]
    tokenizer = train_tokenizer(texts, kind, size)
    assert sorted(Tokenizer.from_str(tokenizer).get_vocab().values()) == list(range(size))
    ids = encode(tokenizer, [*TEXTS, "[PAD]", "x[UNK][PAD]"])["ids"]
    assert 0 < ids.min() <= ids.max() < size
