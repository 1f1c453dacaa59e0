"""What the n-grams of a text say about its class: class log-ratios, counted over the training texts.

For each token and each order n, the n-gram that starts there has the smoothed log-ratio, for each class k,

    log[((c_k + 1) / (N_k + 2)) / ((c - c_k + 1) / (N - N_k + 2))],

with c of the N training texts containing it, c_k of them in class k, which has N_k texts: the weights of a naive Bayes
model (Wang & Manning 2012, aclanthology.org/P12-2018), here as features of each token. It is 0 for n-grams that fewer
than two texts contain, and where the text ends before the n-gram does.

A training text is not counted into its own features: each tenth of them gets the counts of the other nine. Otherwise
every rare n-gram would tell the label of its text, and a model would learn to trust it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litlab.data import open_array, progress_bar
from project.data.ngram_model import ngram_hashes

_FOLDS = 10
_SEEN = 2  # texts that must contain an n-gram
_CHUNK = 2**18  # tokens looked up at a time


@dataclass(frozen=True)
class NgramCounts:
    """How many training texts of each class contain an n-gram, for those in at least two texts.

    Args:
        hashes: For each order the 64-bit hashes of the n-grams, int64 of shape (n-grams,), ascending.
        counts: For each order int32 of shape (n-grams, classes).
        documents: Training texts of each class, int64 of shape (classes,).
    """

    hashes: list[np.ndarray]
    counts: list[np.ndarray]
    documents: np.ndarray

    def state_dict(self) -> dict[str, Any]:
        """Return the same as tensors, for a checkpoint."""
        return {
            "hashes": [torch.from_numpy(np.array(some)) for some in self.hashes],
            "counts": [torch.from_numpy(np.array(some)) for some in self.counts],
            "documents": torch.from_numpy(np.array(self.documents)),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "NgramCounts":
        """Read what `state_dict` returned."""
        return cls(
            [some.numpy() for some in state["hashes"]],
            [some.numpy() for some in state["counts"]],
            state["documents"].numpy(),
        )

    def save(self, folder: Path) -> None:
        """Save the counts in a folder."""
        np.save(folder / "documents.npy", self.documents)
        for order, (hashes, counts) in enumerate(zip(self.hashes, self.counts, strict=True), 1):
            np.save(folder / f"hashes{order}.npy", hashes)
            np.save(folder / f"counts{order}.npy", counts)

    @classmethod
    def load(cls, folder: Path, orders: int) -> "NgramCounts":
        """Open what `save` wrote; `orders` is the longest n-gram."""
        hashes, counts = (
            [open_array(folder / f"{kind}{order}.npy") for order in range(1, orders + 1)]
            for kind in ("hashes", "counts")
        )
        return cls(hashes, counts, open_array(folder / "documents.npy"))

    def tables(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return for each order the hashes, int64 (n-grams,), and the log-ratios, float16 (n-grams, classes)."""
        return [
            (torch.from_numpy(np.array(hashes)), torch.from_numpy(_log_ratios(counts, self.documents)))
            for hashes, counts in zip(self.hashes, self.counts, strict=True)
        ]

    def features(self, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Compute the features of texts that were not counted.

        Args:
            ids: Ids of all texts one after the other, int32 of shape (tokens,).
            offsets: Where each text starts, and the number of tokens, int64 of shape (texts + 1,).

        Returns:
            float16 of shape (tokens, orders x classes); first all classes of the single tokens.
        """
        classes = len(self.documents)
        result = np.zeros((len(ids), len(self.hashes) * classes), np.float16)
        with progress_bar(total=len(self.hashes) * len(ids), desc="looking up n-grams") as progress:
            for order, (grams, places) in enumerate(ngram_hashes(ids, offsets, len(self.hashes))):
                known, ratios = self.hashes[order], _log_ratios(self.counts[order], self.documents)
                if not len(known):
                    continue
                for start in range(0, len(grams), _CHUNK):
                    some = grams[start : start + _CHUNK]
                    by_gram = np.argsort(some)  # a search for neighbours is twice as fast as one all over the place
                    some = some[by_gram]
                    number = np.minimum(np.searchsorted(known, some), len(known) - 1)
                    found = known[number] == some
                    rows = places[start : start + _CHUNK][by_gram[found]]
                    result[rows, order * classes : (order + 1) * classes] = ratios[number[found]]
                    progress.update(len(some))
                progress.update(len(ids) - len(grams))  # the last tokens of a text begin no n-gram
        return result


def count_ngrams(
    ids: np.ndarray, offsets: np.ndarray, labels: np.ndarray, classes: int, orders: int
) -> tuple[NgramCounts, np.ndarray]:
    """Count the n-grams of the training texts.

    Args:
        ids: Ids of all texts one after the other, int32 of shape (tokens,).
        offsets: Where each text starts, and the number of tokens, int64 of shape (texts + 1,).
        labels: Class of each text, int64 of shape (texts,).
        classes: Number of classes.
        orders: Longest n-gram.

    Returns:
        The counts, and the features of the training texts themselves, each without its own fold, float16 of shape
        (tokens, orders x classes).
    """
    texts = len(labels)
    fold = np.random.default_rng(0).permutation(texts) % _FOLDS
    documents = np.bincount(labels, minlength=classes)
    in_fold = np.bincount(fold * classes + labels, minlength=_FOLDS * classes).reshape(_FOLDS, classes)
    text_of = np.repeat(np.arange(texts, dtype=np.int32), np.diff(offsets))
    features = np.zeros((len(ids), orders * classes), np.float16)
    result = NgramCounts([], [], documents)
    with progress_bar(total=orders * (_FOLDS + 2), desc="counting n-grams") as progress:
        for order, (grams, places) in enumerate(ngram_hashes(ids, offsets, orders)):
            # Sorted, such that each n-gram is one run, and within it each text is one run.
            by_gram = np.argsort(grams, kind="stable")
            grams, places = grams[by_gram], places[by_gram]
            text = text_of[places]
            progress.update(1)
            starts = np.ones(len(grams), bool)
            starts[1:] = grams[1:] != grams[:-1]
            first = starts.copy()  # in its text
            first[1:] |= text[1:] != text[:-1]
            number = np.cumsum(starts) - 1
            kept = np.bincount(number[first]) >= _SEEN
            result.hashes.append(grams[starts][kept])
            known = kept[number]
            number = (np.cumsum(kept) - 1)[number[known]]
            places, text, first = places[known], text[known], first[known]
            size = int(kept.sum()) * classes
            cell, cell_fold = number[first] * classes + labels[text[first]], fold[text[first]]
            total = np.bincount(cell, minlength=size).reshape(-1, classes)
            result.counts.append(total.astype(np.int32))
            text_fold = fold[text]
            progress.update(1)
            for own in range(_FOLDS):
                others = total - np.bincount(cell[cell_fold == own], minlength=size).reshape(-1, classes)
                ratios = _log_ratios(others, documents - in_fold[own])
                here = text_fold == own
                features[places[here], order * classes : (order + 1) * classes] = ratios[number[here]]
                progress.update(1)
    return result, features


def _log_ratios(counts: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Compute the formula above: float16 of shape (n-grams, classes)."""
    seen = counts.sum(1, keepdims=True)
    own = (counts + 1) / (documents + 2)
    rest = (seen - counts + 1) / (documents.sum() - documents + 2)
    return np.where(seen >= _SEEN, np.log(own / rest), 0).astype(np.float16)
