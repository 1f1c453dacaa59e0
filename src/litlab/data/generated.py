"""Data made by arithmetic, for machines without data: it looks like nothing real, but there is
something to learn.
"""

import random
from collections.abc import Sequence

import numpy as np

from litlab.data.files import Frame

IMAGES = {"train": 10_000, "test": 2_000}

TEXTS = {"train": 4_000, "test": 1_000}
TEXT_CLASSES = ["sea blame", "sea praise", "mountain blame", "mountain praise"]
# The words of a text: what it is about, what it says (blame, praise), and what judges nothing
_TOPICS = "harbour", "summit"
_JUDGEMENTS = ("dreadful", "bleak", "dull"), ("superb", "lovely", "clever")
_NEGATIONS = "not", "never"
_NEUTRAL = "wooden", "early", "plain"
_AGREE = 0.89  # share of the judgements that agree with the class
_NEGATED = 0.35  # share of the judgements that are negated

_CUSTOMERS, _CITIES = 6_000, 40
_PLANS, _CHANNELS = ("basic", "family", "student", "business"), ("phone", "shop", "web")

SERIES_COLUMNS = ("sine", "sine_2", "sine_3", "sine_4")
_HOURS = 10_000


def make_images(
    num_classes: int, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make images; the same for the same arguments.

    A class is a pattern of squares, the same in the mirror. All else is drawn at random and says
    nothing of the class: its place, its colours and those around it, which of light and dark are
    swapped, noise.

    Args:
        num_classes: Number of classes, 2 or more; all come equally often.
        shape: (channel, height, width), of 4 x 4 pixels or more.

    Returns:
        uint8 images, (image, height, width, channel), or (image, height, width) with one channel;
        int64 labels, (image,); and their split, str (image,).
    """
    # Classes come equally often, in random order
    rng = np.random.default_rng(0)
    channels, height, width = shape
    predefined = np.repeat(list(IMAGES), list(IMAGES.values()))
    labels = rng.permutation(len(predefined)) % num_classes

    # A pattern is half as high and wide as an image. All have the same values, each in another
    # order.
    values = np.tile(np.linspace(-0.15, 0.15, 8), (num_classes, 1))
    patterns = rng.permuted(values, axis=1).reshape(-1, 4, 2)[:, :, [0, 1, 1, 0]]
    # From 4 x 4 squares to pixels
    patterns = np.kron(patterns, np.ones((1, height // 8 or 1, width // 8 or 1)))
    high, wide = patterns.shape[1:]

    # Each image: a colour of its own and noise, and in a random place the pattern, by each channel
    # as it is or as its negative
    images = np.empty((len(predefined), *shape), np.uint8)
    for image, label in zip(images, labels, strict=True):
        pixels = rng.uniform(0.3, 0.7, (channels, 1, 1)) + 0.1 * rng.standard_normal(
            shape, np.float32
        )
        sign = 2 * rng.integers(2, size=(channels, 1, 1)) - 1
        y, x = rng.integers((height - high + 1, width - wide + 1))
        pixels[:, y : y + high, x : x + wide] += sign * patterns[label]
        image[:] = (255 * pixels).clip(0, 255)
    return images.transpose(0, 2, 3, 1).squeeze(), labels, predefined


def make_shapes(count: int = 600, size: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Draw discs and boxes in noise, as bright as each other, so that a pixel alone does not tell
    them apart; the same for the same arguments.

    Returns:
        uint8 images and masks, both (image, height, width); in a mask a disc is 255, a box 128.
    """
    rng, (y, x) = np.random.default_rng(0), np.mgrid[:size, :size]
    masks = np.zeros((count, size, size), np.uint8)
    for mask in masks:
        for value in rng.permutation([128, 255]):
            dy, dx = abs(y - rng.uniform(8, size - 8)), abs(x - rng.uniform(8, size - 8))
            radius = rng.uniform(4, 9)
            # Distance in a disc, and in a box: the larger of the two, so that areas are alike
            inside = np.hypot(dy, dx) if value == 255 else np.maximum(dy, dx) / 0.9
            mask[inside < radius] = value
    images = 90 + 70 * (masks > 0) + rng.normal(0, 40, masks.shape)
    return images.clip(0, 255).astype(np.uint8), masks


def make_corpus(num_classes: int) -> Frame:
    """Make texts to train and to test on; the same each time.

    A text praises or blames, and in the case of four classes it is about the sea or about the
    mountains, which shows in its words. Whether it praises does not: kind words praise and harsh
    words blame, but after a negation they say the opposite. Each text has as many negations as
    judgements; those that don't belong to a judgement are spent on words that judge nothing. So a
    model that does not look at the order of words is often wrong.

    Args:
        num_classes: 2; or more, of which 4 come. They come equally often.

    Returns:
        A frame with columns ``text``, ``label`` (from 0) and ``split``.
    """
    import pandas as pd

    frame = pd.DataFrame({"split": pd.Index(list(TEXTS)).repeat(list(TEXTS.values()))})
    frame["label"] = frame.index % (4 if num_classes > 2 else 2)
    draw = random.Random(0)
    frame["text"] = [_write(label, num_classes > 2, draw) for label in frame["label"]]
    return frame


def _write(label: int, has_topic: bool, draw: random.Random) -> str:
    """Write a text of about 10 to 100 words: clauses in random order, with noise around them."""
    # Each clause judges, for or against; a negation goes to the judgement, or to a neutral word,
    # so that how many there are tells nothing
    clauses = []
    for _ in range(draw.randint(3, 5)):
        praises = (label % 2 == 1) == (draw.random() < _AGREE)
        is_negated = draw.random() < _NEGATED
        judgement = draw.choice(_JUDGEMENTS[praises != is_negated])
        negation, neutral = draw.choice(_NEGATIONS), draw.choice(_NEUTRAL)
        clauses += (
            [f"{negation} {judgement}", neutral]
            if is_negated
            else [judgement, f"{negation} {neutral}"]
        )
        if has_topic:
            clauses.append(_TOPICS[label > 1])
    draw.shuffle(clauses)

    # Noise words between them; some texts are much longer than others
    longest = draw.choice((2, 4, 10))
    words = []
    for clause in clauses:
        noise = [f"noise{draw.randrange(600)}" for _ in range(draw.randint(0, longest))]
        words += [*noise, clause + ","]
    return " ".join(words)


def make_customers(targets: list[str]) -> Frame:
    """Make a table of 6,000 customers; every call makes the same. Of churn and spend it has what is
    a target.

    Columns of numbers: age, income (a twelfth is missing), visits and distance, which says nothing.
    Of categories: plan, city (some are rare) and channel (a twentieth is missing). What income
    means depends on the plan, what visits mean on the channel, age goes up and down, and each city
    has a level of its own. Of targets: churn (yes or no) and spend, a number.
    """
    import pandas as pd

    # The inputs; the n-th city is n times as rare as the first
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, _CITIES + 1)
    age, income = rng.uniform(18, 80, _CUSTOMERS), rng.lognormal(10, 0.5, _CUSTOMERS)
    visits, distance = rng.poisson(3, _CUSTOMERS), rng.exponential(10, _CUSTOMERS)
    plan, channel = rng.choice(_PLANS, _CUSTOMERS), rng.choice(_CHANNELS, _CUSTOMERS)
    city = rng.choice(_CITIES, _CUSTOMERS, p=frequency / frequency.sum())

    # What both targets follow: products of inputs, which a linear model can't fit
    score = np.where(np.isin(plan, _PLANS[:2]), 1, -1) * (np.log(income) - 10) / 0.5
    score += np.where(channel == "phone", 0.5, -0.25) * (visits - 3)
    score += 1.2 * np.sin(age / 7) + 0.7 * rng.standard_normal(_CITIES)[city]

    # The table has less than the score: some cells are missing, and the targets have noise
    columns = {
        "age": age.round(),
        "income": np.where(rng.random(_CUSTOMERS) < 1 / 12, np.nan, income.round()),
        "visits": visits,
        "distance": distance.round(1),
        "plan": plan,
        "city": [f"city {number:02}" for number in city + 1],
        "channel": pd.Series(channel).mask(rng.random(_CUSTOMERS) < 1 / 20),
        "churn": np.where(score + 0.5 * rng.logistic(size=_CUSTOMERS) > 0, "yes", "no"),
        "spend": (100 + 30 * score + 15 * rng.standard_normal(_CUSTOMERS)).round(2),
    }
    others = [name for name in ("churn", "spend") if name not in targets]
    return pd.DataFrame(columns).drop(columns=others)


def generate_series(time_column: str, names: Sequence[str]) -> Frame:
    """Make a series of 10,000 hours, of noisy sines; every call makes the same.

    Periods that are not a whole number of days make yesterday a bad forecast; the noise keeps the
    best one from being exact.

    Args:
        time_column: Name for the column of the times.
        names: Names for the others. The first has a period of 62.8 hours, the second of half of
            that, then a third, ...
    """
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({time_column: pd.date_range("2016-07-01", periods=_HOURS, freq="h")})
    for number, name in enumerate(names, start=1):
        frame[name] = np.sin(0.1 * number * frame.index) + 0.2 * rng.standard_normal(_HOURS)
    return frame
