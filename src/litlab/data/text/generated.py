"""Texts made up by rules, for machines without data: nonsense, but nonsense that must be learned.

A text praises or blames, and in the case of four classes it is about the sea or about the mountains, which shows in its
words. Whether it praises does not: kind words praise and harsh words blame, but after a negation they say the opposite.
Each text has as many negations as judgements; those that don't belong to a judgement are spent on words that judge
nothing. So a model that does not look at the order of words is often wrong.
"""

import random
from typing import Any

CLASSES = ["sea blame", "sea praise", "mountain blame", "mountain praise"]
SIZES = {"train": 4_000, "test": 1_000}
_TOPICS = "harbour", "summit"
_JUDGEMENTS = ("dreadful", "bleak", "dull"), ("superb", "lovely", "clever")
_NEGATIONS = "not", "never"
_NEUTRAL = "wooden", "early", "plain"
_AGREE = 0.89  # share of the judgements that agree with the class
_NEGATED = 0.35  # share of the judgements that are negated


def make_corpus(num_classes: int) -> Any:
    """Make texts to train and to test on; the same each time.

    Args:
        num_classes: 2; or more, of which 4 come. They come equally often.

    Returns:
        A frame with columns ``text``, ``label`` (from 0) and ``split``.
    """
    import pandas as pd

    frame = pd.DataFrame({"split": pd.Index(list(SIZES)).repeat(list(SIZES.values()))})
    frame["label"] = frame.index % (4 if num_classes > 2 else 2)
    draw = random.Random(0)
    frame["text"] = [_write(label, num_classes > 2, draw) for label in frame["label"]]
    return frame


def _write(label: int, has_topic: bool, draw: random.Random) -> str:
    """Write a text of about 10 to 100 words: clauses in random order, with noise around them."""
    clauses = []
    for _ in range(draw.randint(3, 5)):
        praises = (label % 2 == 1) == (draw.random() < _AGREE)
        is_negated = draw.random() < _NEGATED
        judgement = draw.choice(_JUDGEMENTS[praises != is_negated])
        negation, neutral = draw.choice(_NEGATIONS), draw.choice(_NEUTRAL)
        clauses += [f"{negation} {judgement}", neutral] if is_negated else [judgement, f"{negation} {neutral}"]
        if has_topic:
            clauses.append(_TOPICS[label > 1])
    draw.shuffle(clauses)

    longest = draw.choice((2, 4, 10))  # some texts are much longer than others
    parts = []
    for clause in clauses:
        noise = [f"noise{draw.randrange(600)}" for _ in range(draw.randint(0, longest))]
        parts += [*noise, clause + ","]
    return " ".join(parts)
