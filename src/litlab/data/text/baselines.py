"""What a text classifier has to beat."""

import numpy as np

from litlab.data.scores import classification_scores
from litlab.data.text.stored import Stored


def most_frequent_class(stored: Stored) -> dict[str, float]:
    """Score the test texts as if all were of the most frequent class of the training texts."""
    train, test = stored.array("train", "labels"), stored.array("test", "labels")
    frequent = np.bincount(train, minlength=len(stored.class_names)).argmax()
    return classification_scores(np.full(len(test), frequent), test)
