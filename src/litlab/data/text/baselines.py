"""What a text classifier has to beat."""

from typing import cast

import numpy as np

from litlab.data.text.stored import Stored


def most_frequent_class(stored: Stored) -> dict[str, float]:
    """Score the test texts as if all were of the most frequent class of the training texts."""
    train, test = stored.array("train", "labels"), stored.array("test", "labels")
    frequent = np.bincount(train, minlength=len(stored.class_names)).argmax()
    return classification_scores(np.full(len(test), frequent), test)


def classification_scores(predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Compute accuracy (``test/acc``) and macro F1 (``test/f1``) of predicted classes, both int64 of shape (texts,)."""
    from sklearn.metrics import accuracy_score, f1_score

    macro = cast(float, f1_score(labels, predicted, average="macro"))
    return {"test/acc": float(accuracy_score(labels, predicted)), "test/f1": float(macro)}
