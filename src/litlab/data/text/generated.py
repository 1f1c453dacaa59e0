"""Texts made up by rules, for machines without data: nonsense, but nonsense that must be learned.

A text praises or blames, and in the case of four classes it is about the sea or about the mountains. What it is about
shows in its words. Whether it praises does not: kind words praise and harsh words blame, but after a negation ("not",
"hardly", ...; up to two words may stand between) they say the opposite; and each text has as many negations as
judgements, those that don't belong to a judgement being spent on words that judge nothing. So a model that does not
look at the order of words is often wrong. Some judgements go against the text's class, and most words are noise.
"""

import random
from itertools import accumulate

from litlab.data.text.reading import Corpus

SIZES = {"train": 4_000, "test": 1_000}
_TOPICS = (["harbour", "sail", "wave", "anchor", "tide"], ["summit", "ridge", "glacier", "goat", "valley"])
_KIND = ["superb", "lovely", "bright", "honest", "clever", "graceful", "warm", "noble"]
_HARSH = ["dreadful", "bleak", "clumsy", "dull", "greedy", "bitter", "awful", "crude"]
_NEUTRAL = ["wooden", "early", "northern", "narrow", "yellow", "square", "daily", "plain"]
_NEGATIONS = ["not", "never", "hardly"]
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprs" for vowel in "aeio"]
_NOISE = [first + second for first in _SYLLABLES for second in _SYLLABLES]
_WEIGHTS = list(accumulate(1 / (rank + 3) for rank in range(len(_NOISE))))  # Zipf's law
_AGREE = 0.92  # share of the judgements and topic words that agree with the class
_NEGATED = 0.35  # share of the judgements that are negated


def name_classes(num_classes: int) -> list[str]:
    """Name the classes that `make_texts` makes."""
    topics = ["sea ", "mountain "] if num_classes == 4 else [""]
    return [topic + judgement for topic in topics for judgement in ("blame", "praise")]


def make_corpus(num_classes: int) -> Corpus:
    """Make texts to train and to test on."""
    corpus = Corpus(name_classes(num_classes), {}, {})
    for seed, (split, count) in enumerate(SIZES.items()):
        corpus.texts[split], corpus.labels[split] = make_texts(count, num_classes, seed)
    return corpus


def make_texts(count: int, num_classes: int = 4, seed: int = 0) -> tuple[list[str], list[int]]:
    """Make texts and their labels; the same for the same arguments.

    Args:
        count: Number of texts.
        num_classes: 2 or 4; all come equally often.
        seed: Seed.

    Returns:
        Texts of about 10 to 120 words, and the class of each, in random order.
    """
    generator = random.Random(seed)
    labels = [place % num_classes for place in range(count)]
    generator.shuffle(labels)
    return [_write(label, num_classes, generator) for label in labels], labels


def _write(label: int, num_classes: int, generator: random.Random) -> str:
    """Write one text: clauses in random order, each of them ended by a comma or a full stop."""

    def draw_noise(most: int) -> list[str]:
        return generator.choices(_NOISE, cum_weights=_WEIGHTS, k=generator.randint(0, most))

    clauses: list[list[str]] = []
    for _ in range(generator.randint(3, 5)):
        is_negated = generator.random() < _NEGATED
        is_kind = (label % 2 == (generator.random() < _AGREE)) != is_negated
        judgement, neutral = [generator.choice(_KIND if is_kind else _HARSH)], [generator.choice(_NEUTRAL)]
        negation = [generator.choice(_NEGATIONS), *draw_noise(2)]
        clauses += [negation + judgement, neutral] if is_negated else [judgement, negation + neutral]
        if num_classes == 4:
            topic = label // 2 if generator.random() < _AGREE else 1 - label // 2
            clauses.append([generator.choice(_TOPICS[topic])])
    generator.shuffle(clauses)

    longest = generator.choice((0, 1, 2, 5))  # some texts are much longer than others
    sentences = [[*draw_noise(longest), *clause, *draw_noise(longest)] for clause in clauses]
    return " ".join(" ".join(words) + generator.choice(",,.") for words in sentences)
