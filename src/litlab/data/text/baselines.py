"""What the test split gives to methods that a model has to beat."""

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from litlab.data.cache import is_whole, new_cache, open_array
from litlab.data.text.ngram_model import ngram_model
from litlab.data.text.stored import Stored


def baseline_results(stored: Stored) -> dict[str, dict[str, float]]:
    """Accuracy and macro F1 of an n-gram model, and of always saying the most frequent class.

    The n-gram model learns from the training split alone, as the network does. It has its own full vocabulary.

    Args:
        stored: The texts.

    Returns:
        For each method its ``test/acc`` and ``test/f1``.
    """
    train, test = stored.array("train", "labels"), stored.array("test", "labels")
    frequent = np.bincount(train, minlength=len(stored.class_names)).argmax()
    return {
        "n-gram model": _scores(_ngram_predictions(stored), test),
        "most frequent class": _scores(np.full(len(test), frequent), test),
    }


def _ngram_predictions(stored: Stored) -> np.ndarray:
    """Classes of the test texts; computed once, then from a cache beside that of the texts."""
    folder = stored.folder.with_name(f"{stored.folder.name}-ngrams")
    if not is_whole(folder):
        train, test = stored.texts("train"), stored.texts("test")
        rank_zero_info(f"Training an n-gram model on the {len(train):,} training texts, to compare with.")
        predictions = ngram_model(train, stored.array("train", "labels"), test, len(stored.class_names))
        with new_cache(folder, predictions.nbytes) as staging:
            np.save(staging / "test.npy", predictions)
    return open_array(folder / "test.npy")


def _scores(predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score

    return {
        "test/acc": float(accuracy_score(labels, predicted)),
        "test/f1": float(f1_score(labels, predicted, average="macro")),
    }
