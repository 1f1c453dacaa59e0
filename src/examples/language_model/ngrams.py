"""What a language model is compared with: n-grams of characters."""

import math
from collections import Counter, defaultdict


def score_ngrams(train: str, test: str, order: int) -> float:
    """Return the bits per character of n-grams, each mixed with the next shorter one as Witten &
    Bell 1991 (doi 10.1109/18.87000) do.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for size in range(order):
        for end in range(size, len(train)):
            counts[train[end - size : end]][train[end]] += 1
    totals = {context: (following.total(), len(following)) for context, following in counts.items()}
    bits, letters = 0.0, len({*train}) + 1
    for end, letter in enumerate(test):
        probability = 1 / letters
        for size in range(order):
            context = test[max(0, end - size) : end]
            if len(context) < size or context not in totals:
                break
            total, different = totals[context]
            probability = (counts[context][letter] + different * probability) / (total + different)
        bits -= math.log2(probability)
    return bits / len(test)
