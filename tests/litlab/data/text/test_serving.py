"""Token ids as a deployed model takes them."""

import pytest

from litlab.data.text.serving import TextMetadata, TextServing


def made(long_texts: str, max_tokens: int = 4) -> TextServing:
    return TextServing(TextMetadata(["a", "b"], "{}", 100, max_tokens, long_texts, {}, False))


def test_how_much_is_read_is_said():
    facts = made("crop").facts()
    assert (facts["max_tokens"], facts["both_ends"]) == (4, True)
    assert made("truncate").facts()["both_ends"] is False
    assert (made("crop").most, made("truncate").most) == ({"time": 8}, {"time": 4})


@pytest.mark.parametrize("max_tokens", [2, 4, 100])
def test_the_example_has_two_texts_of_different_length(max_tokens):
    (ids,) = made("truncate", max_tokens).example()
    lengths = (ids != 0).sum(1).tolist()
    assert lengths == [ids.shape[1], ids.shape[1] - 1] != [0, 0]
    assert not ids[1, lengths[1] :].any()  # padding comes last
