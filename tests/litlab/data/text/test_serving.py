"""Token ids as a deployed model takes them."""

import torch

from litlab.data.text import TextMetadata, serving
from litlab.data.text.serving import TextServing


def made(long_texts: str) -> TextServing:
    return TextServing(TextMetadata(["a", "b"], "{}", 100, 4, long_texts, {}, False))


def test_of_a_very_long_text_both_ends_are_read(monkeypatch):
    """What the model reads of it, its first and last `max_tokens`, is there, and nothing is longer than the graph."""
    monkeypatch.setattr(serving, "_LONGEST", 10)
    both = made("crop")
    assert both.most == {"time": 16}
    ids = torch.zeros(3, 30, dtype=torch.int64)
    ids[0, :30], ids[1, :16], ids[2, :3] = torch.arange(2, 32), 5, 7
    (cut,) = both.raw(({"ids": ids}, torch.zeros(3)))
    assert cut.shape == (3, 16)
    assert cut[0].tolist() == [*range(2, 10), *range(24, 32)]
    assert torch.equal(cut[1:], ids[1:, :16])
    (short,) = both.raw({"ids": ids[2:, :3]})
    assert torch.equal(short, ids[2:, :3])


def test_how_much_is_read_is_said():
    facts = made("crop").facts()
    assert (facts["max_tokens"], facts["both_ends"]) == (4, True)
    assert made("truncate").facts()["both_ends"] is False
    assert made("truncate").most == {"time": 4}
