"""Texts made up by rules, for machines without data: nonsense, but nonsense that must be learned.

A text praises or blames, and in the case of four classes it is about the sea or about the mountains. What it is about
shows in its words. Whether it praises does not: kind words praise and harsh words blame, but after a negation ("not",
"hardly", ...; up to two words may stand between) they say the opposite; and each text has as many negations as
judgements, those that don't belong to a judgement being spent on words that judge nothing. So a model that does not
look at the order of words is often wrong. Some judgements go against the text's class, and most words are noise.
"""

import random
from itertools import accumulate

_TOPICS = (
    ["harbour", "sail", "wave", "anchor", "tide", "gull", "reef", "captain", "lighthouse", "salt"],
    ["summit", "ridge", "glacier", "goat", "valley", "rope", "cabin", "snow", "trail", "eagle"],
)
_KIND = ["superb", "lovely", "bright", "honest", "clever", "graceful", "warm", "splendid", "fine", "brisk", "noble"]
_HARSH = ["dreadful", "bleak", "clumsy", "dull", "greedy", "bitter", "awful", "shabby", "crude", "vile", "feeble"]
_NEUTRAL = ["wooden", "early", "northern", "narrow", "yellow", "square", "distant", "daily", "plain", "local", "brief"]
_NEGATIONS = ["not", "never", "hardly"]
_NOISE_WORDS = 2000
_AGREE = 0.92  # share of the judgements and topic words that agree with the class
_NEGATED = 0.35  # share of the judgements that are negated


def generated_class_names(num_classes: int) -> list[str]:
    """Name the classes, 2 or 4, that `generated_texts` makes.

    Raises:
        ValueError: The number of classes is neither 2 nor 4.
    """
    if num_classes not in (2, 4):
        raise ValueError(f"num_classes: {num_classes} is not 2 or 4")
    judgements = ["blame", "praise"]
    return (
        judgements if num_classes == 2 else [f"{topic} {what}" for topic in ("sea", "mountain") for what in judgements]
    )


def generated_texts(count: int, num_classes: int = 4, seed: int = 0) -> tuple[list[str], list[int]]:
    """Make texts and their labels; the same for the same arguments.

    Args:
        count: Number of texts.
        num_classes: 2 or 4; all come equally often.
        seed: Seed of everything but the vocabulary.

    Returns:
        Texts of about 10 to 120 words, and the class of each, in random order.

    Raises:
        ValueError: The number of classes is neither 2 nor 4.
    """
    generated_class_names(num_classes)
    generator = random.Random(seed)
    noise = _noise_words()
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(noise))))  # Zipf's law
    labels = [i % num_classes for i in range(count)]
    generator.shuffle(labels)
    return [_write(label, num_classes, noise, weights, generator) for label in labels], labels


def _noise_words() -> list[str]:
    generator = random.Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = {"".join(generator.choices(syllables, k=generator.choice((1, 2, 2, 3)))) for _ in range(3 * _NOISE_WORDS)}
    return generator.sample(sorted(words), _NOISE_WORDS)


def _write(label: int, num_classes: int, noise: list[str], weights: list[float], generator: random.Random) -> str:
    """One text: clauses in random order, each of them ended by a comma or a full stop."""
    praise, topic = bool(label % 2), label // 2

    def agrees(yes: bool) -> bool:
        return yes if generator.random() < _AGREE else not yes

    def some_noise(low: int, high: int) -> list[str]:
        return generator.choices(noise, cum_weights=weights, k=generator.randint(low, high))

    clauses: list[list[str]] = []
    for _ in range(generator.randint(3, 5)):
        negated = generator.random() < _NEGATED
        word = generator.choice(_KIND if agrees(praise) != negated else _HARSH)
        negation = [generator.choice(_NEGATIONS), *some_noise(0, generator.choice((0, 0, 1, 2)))]
        clauses.append([*(negation if negated else []), word])
        clauses.append([*([] if negated else negation), generator.choice(_NEUTRAL)])
    if num_classes == 4:
        own, other = _TOPICS[topic], _TOPICS[1 - topic]
        clauses += [[generator.choice(own if agrees(True) else other)] for _ in range(generator.randint(3, 5))]
    generator.shuffle(clauses)
    longest = generator.choice((0, 1, 2, 5))  # some texts are much longer than others
    words: list[str] = []
    for clause in clauses:
        words += [*some_noise(0, longest), *clause, *some_noise(0, longest)]
        words[-1] += generator.choice((",", ",", "."))
    return " ".join(words)
