"""N-gram features, against counting by hand."""

import math

import numpy as np
import pytest
import torch

from project.data.ngram_features import _FOLDS, NgramCounts, count_ngrams

CLASSES, ORDERS = 3, 3


def flat(texts):
    return np.concatenate(texts).astype(np.int32), np.cumsum([0, *map(len, texts)])


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 60)
    texts = [rng.integers(2 + label, 9 + label, rng.integers(1, 15)) for label in labels]
    return texts, labels


def by_hand(texts, labels, text, counted):
    """Features of one text from the texts numbered `counted`."""
    documents = [sum(labels[i] == k for i in counted) for k in range(CLASSES)]
    result = np.zeros((len(text), ORDERS * CLASSES))
    for start in range(len(text)):
        for order in range(1, ORDERS + 1):
            gram = tuple(text[start : start + order])
            if len(gram) < order:
                continue
            having = [
                i
                for i in counted
                if any(tuple(texts[i][s : s + order]) == gram for s in range(len(texts[i]) - order + 1))
            ]
            if len(having) < 2:
                continue
            for k in range(CLASSES):
                own = sum(labels[i] == k for i in having)
                ratio = (own + 1) / (documents[k] + 2)
                rest = (len(having) - own + 1) / (len(counted) - documents[k] + 2)
                result[start, (order - 1) * CLASSES + k] = math.log(ratio / rest)
    return result


def test_new_texts_get_the_counts_of_all(corpus):
    texts, labels = corpus
    counts, _ = count_ngrams(*flat(texts), labels, CLASSES, ORDERS)
    new = [np.array([3, 4, 5, 3, 4]), np.array([20]), texts[0], np.array([5, 99, 6])]
    ids, offsets = flat(new)
    features = counts.features(ids, offsets)
    assert features.dtype == np.float16
    assert features.shape == (len(ids), ORDERS * CLASSES)
    expected = np.concatenate([by_hand(texts, labels, text, range(60)) for text in new])
    np.testing.assert_allclose(features, expected, atol=2e-3)
    assert (expected != 0).any(0).all()


def test_training_texts_leave_out_their_own_tenth(corpus):
    texts, labels = corpus
    _, features = count_ngrams(*flat(texts), labels, CLASSES, ORDERS)
    fold = np.random.default_rng(0).permutation(60) % _FOLDS
    assert np.bincount(fold).tolist() == [6] * 10
    expected = np.concatenate(
        [by_hand(texts, labels, text, np.flatnonzero(fold != own)) for text, own in zip(texts, fold, strict=True)]
    )
    np.testing.assert_allclose(features, expected, atol=2e-3)


def test_labels_of_noise_do_not_leak():
    """Evidence that says nothing must not look as if it did, or a model learns to trust it."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 400)
    ids, offsets = flat([rng.integers(2, 400, 20) for _ in labels])
    counts, features = count_ngrams(ids, offsets, labels, 2, 1)
    for scores, low, high in ((features, 0.35, 0.6), (counts.features(ids, offsets), 0.8, 1.0)):
        favoured = np.add.reduceat(scores[:, 1].astype(np.float64), offsets[:-1]) > 0
        assert low < (favoured == labels).mean() <= high


def test_only_n_grams_of_two_texts_are_kept():
    ids, offsets = flat([np.array([2, 3, 3, 3]), np.array([2, 4]), np.array([4, 2])])
    counts, _ = count_ngrams(ids, offsets, np.array([0, 1, 1]), 2, 2)
    assert [len(hashes) for hashes in counts.hashes] == [2, 0]
    assert sorted(map(tuple, counts.counts[0].tolist())) == [(0, 2), (1, 2)]
    assert counts.documents.tolist() == [1, 2]
    assert (counts.features(ids, offsets)[:, 2:] == 0).all()


def test_counts_survive_a_checkpoint(corpus, tmp_path):
    texts, labels = corpus
    counts, _ = count_ngrams(*flat(texts), labels, CLASSES, ORDERS)
    torch.save(counts.state_dict(), tmp_path / "counts.pt")
    again = NgramCounts.from_state_dict(torch.load(tmp_path / "counts.pt", weights_only=True))
    assert again.counts[0].dtype == np.int32
    assert np.array_equal(again.features(*flat(texts)), counts.features(*flat(texts)))
    assert all((np.diff(hashes) > 0).all() for hashes in again.hashes)
