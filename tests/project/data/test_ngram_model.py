from itertools import pairwise

import numpy as np
import pytest

from project.data.ngram_model import ngram_hashes, ngram_model


def sentences(count, seed, classes=2):
    """Texts whose class is in one phrase; its words come in all classes alike."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    words = [f"w{i}" for i in range(20)]
    verbs = ["not", "so", "too", "very"]
    texts = []
    for label in labels:
        pairs = [f"{verbs[i]} {'good' if (i == label) else 'odd'}" for i in range(classes)]
        rng.shuffle(pairs)
        texts.append(" ".join(" ".join([*rng.choice(words, 3), pair]) for pair in pairs))
    return texts, labels


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_it_learns_phrases(classes):
    texts, labels = sentences(300, 0, classes)
    test_texts, test_labels = sentences(100, 1, classes)
    predicted = ngram_model(texts, labels, test_texts, classes)
    assert predicted.shape == (100,)
    assert (predicted == test_labels).mean() > 0.97


def test_test_texts_with_nothing_known_get_a_class():
    texts, labels = sentences(50, 0)
    assert ngram_model(texts, labels, ["unheard of", "<br />"], 2).tolist() in ([0, 0], [1, 1])


def test_words_in_lower_case_and_without_line_breaks():
    texts = ["Fine film", "fine show", "bad film", "bad show"] * 3
    labels = np.array([1, 1, 0, 0] * 3)
    assert ngram_model(texts, labels, ["FINE<br />x", "x<br />Bad!"], 2).tolist() == [1, 0]


def test_a_word_counts_once_per_text_and_only_if_two_texts_have_it():
    texts = ["fine film", "fine show", "bad film", "bad show"] * 3 + ["alpha alpha show", "beta beta show"]
    labels = np.array([1, 1, 0, 0] * 3 + [0, 1])
    once, many = ngram_model(texts, labels, ["fine bad bad bad", "fine fine fine bad"], 2)
    assert once == many
    alpha, beta = ngram_model(texts, labels, ["alpha", "beta"], 2)
    assert alpha == beta


def test_the_same_twice():
    texts, _ = sentences(200, 0)
    noise = np.random.default_rng(0).integers(0, 2, 200)
    first, again = (ngram_model(texts, noise, texts[::-1], 2) for _ in range(2))
    assert np.array_equal(first, again)


def test_hashes_tell_n_grams_apart():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30, 3000)
    offsets = np.array([0, 5, 6, 1000, 1000, 3000])
    for order, (hashes, places) in enumerate(ngram_hashes(ids, offsets, 3), start=1):
        expected = [place for start, end in pairwise(offsets) for place in range(start, end - order + 1)]
        assert places.tolist() == expected
        assert hashes.dtype == np.int64
        by_hash = {}
        for number, place in zip(hashes.tolist(), places.tolist(), strict=True):
            by_hash.setdefault(number, set()).add(tuple(ids[place : place + order].tolist()))
        assert all(len(grams) == 1 for grams in by_hash.values())
        assert len(by_hash) == len(set.union(*by_hash.values()))


def test_hashes_do_not_depend_on_the_rest():
    def hashes(ids):
        return [some.tolist() for some, _ in ngram_hashes(np.array(ids), np.array([0, len(ids)]), 3)]

    long, short = hashes([5, 6, 7, 8, 9]), hashes([6, 7, 8])
    assert [some[1:-1] for some in long[:1]] == short[:1]
    assert long[2][1] == short[2][0]
    assert not {*long[0]} & {*long[1]}
