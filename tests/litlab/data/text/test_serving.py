"""Token ids as a deployed model takes them."""

import torch

from litlab.data.text.serving import TextMetadata, TextServing, ends_of


def made(long_texts: str) -> TextServing:
    return TextServing(TextMetadata(["a", "b"], "{}", 100, 4, long_texts, {}, False))


def test_both_ends_of_a_long_text_are_read():
    assert ends_of(torch.arange(10), 4).tolist() == [0, 1, 8, 9]
    assert ends_of(torch.arange(3), 4).tolist() == [0, 1, 2]


def test_how_much_is_read_is_said():
    facts = made("crop").facts()
    assert (facts["max_tokens"], facts["both_ends"]) == (4, True)
    assert made("truncate").facts()["both_ends"] is False
    assert (made("crop").most, made("truncate").most) == ({"time": 8}, {"time": 4})
