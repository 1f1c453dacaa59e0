"""The cache of n-gram evidence, beside that of the token ids."""

from pathlib import Path

import numpy as np

from litlab.data.cache import new_cache, open_array
from litlab.data.text.ngram_features import NgramCounts, count_ngrams
from litlab.data.text.stored import Stored


def evidence_folder(folder: Path, orders: int) -> Path:
    """Where the evidence of a cache is.

    Args:
        folder: The cache of the token ids.
        orders: Longest n-gram.
    """
    return folder.with_name(f"{folder.name}-evidence{orders}")


def store_evidence(stored: Stored, orders: int) -> None:
    """Count the n-grams of the training texts into their cache.

    Args:
        stored: The token ids.
        orders: Longest n-gram.

    Raises:
        UserError: The cache can't be written.
    """
    ids, offsets, labels = (stored.array("train", kind) for kind in ("ids", "offsets", "labels"))
    classes = len(stored.class_names)
    with new_cache(evidence_folder(stored.folder, orders), 2 * len(ids) * orders * classes) as folder:
        counts, evidence = count_ngrams(ids, offsets, labels, classes, orders)
        np.save(folder / "train.npy", evidence)
        np.save(folder / "documents.npy", counts.documents)
        for order in range(orders):
            np.save(folder / f"hashes{order + 1}.npy", counts.hashes[order])
            np.save(folder / f"counts{order + 1}.npy", counts.counts[order])


def load_counts(folder: Path, orders: int) -> NgramCounts:
    """Open the counts in a cache.

    Args:
        folder: The cache of the token ids.
        orders: Longest n-gram.
    """
    own = evidence_folder(folder, orders)
    hashes, counts = (
        [open_array(own / f"{kind}{order}.npy") for order in range(1, orders + 1)] for kind in ("hashes", "counts")
    )
    return NgramCounts(hashes, counts, open_array(own / "documents.npy"))


def load_evidence(folder: Path, orders: int) -> np.ndarray:
    """Open the evidence of the training texts, each without its own fold.

    Args:
        folder: The cache of the token ids.
        orders: Longest n-gram.

    Returns:
        float16 of shape (tokens, orders x classes).
    """
    return open_array(evidence_folder(folder, orders) / "train.npy")
