"""What the words and phrases of a text tell of its class: n-grams, and a linear model of them.

A model of texts that is no better than this one has learned nothing from what stands further apart.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from litlab.data import GOLDEN, mix_array

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TOKENS = re.compile(r"\w+(?:'\w+)*|[^\w\s]")  # words, and every punctuation mark
_ORDERS = 3
_C = 1.0  # inverse strength of the L2 penalty; .1 and 10 were no better on validation texts of AG News and IMDB


def ngram_model(
    train_texts: list[str], train_labels: np.ndarray, test_texts: list[str], num_classes: int
) -> np.ndarray:
    """Train an n-gram model and predict with it.

    Binary features for each word, pair and triple of words in at least two training texts, scaled by their naive Bayes
    log-count ratios, and a logistic regression on them (Wang & Manning 2012, aclanthology.org/P12-2018, with logistic
    loss); one against the rest for each class where there are more than two.

    Args:
        train_texts: Texts to train on.
        train_labels: Class of each, int64 of shape (texts,); every class occurs.
        test_texts: Texts to predict.
        num_classes: Number of classes.

    Returns:
        Predicted class of each test text, int64 of shape (texts,).
    """
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LogisticRegression

    words: dict[str, int] = {}
    train_tokens = _tokenise(train_texts, words)
    test_tokens = _tokenise(test_texts, words)
    train_blocks, test_blocks = [], []
    for (grams, text), (test_grams, test_text) in zip(_grams(*train_tokens), _grams(*test_tokens), strict=True):
        known = _in_two_texts(grams, text)
        train_blocks.append(_features(grams, text, known, len(train_texts)))
        test_blocks.append(_features(test_grams, test_text, known, len(test_texts)))
    train, test = csr_matrix(hstack(train_blocks)), csr_matrix(hstack(test_blocks))

    scores = np.zeros((num_classes, len(test_texts)))
    for label in range(num_classes) if num_classes > 2 else (1,):
        inside = train_labels == label
        own, rest = (np.asarray(train[part].sum(0)).ravel() + 1.0 for part in (inside, ~inside))
        ratio = np.log((own / own.sum()) / (rest / rest.sum()))
        model = LogisticRegression(C=_C, solver="liblinear", dual=True, max_iter=1000, random_state=0)
        model.fit(train.multiply(ratio).tocsr(), inside)
        scores[label] = model.decision_function(test.multiply(ratio).tocsr())
    return scores.argmax(0)


def ngram_hashes(ids: np.ndarray, offsets: np.ndarray, orders: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Hash all n-grams of texts, one order after the other.

    Args:
        ids: Token ids of all texts one after the other, of shape (tokens,), not negative.
        offsets: Where each text starts, and the number of tokens, int64 of shape (texts + 1,).
        orders: Longest n-gram.

    Yields:
        For n = 1, 2, ...: a 64-bit hash of each n-gram, int64, and the place of its first token, int64 and ascending;
        both of shape (n-grams,). No n-gram runs from one text into the next.
    """
    left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(ids))  # tokens from here to the end of the text
    hashes = mix_array(ids.astype(np.uint64))
    for order in range(1, orders + 1):
        if order > 1:
            hashes = mix_array(hashes[:-1] * np.uint64(GOLDEN) + ids[order - 1 :].astype(np.uint64))
        places = np.flatnonzero(left[: len(hashes)] >= order)
        yield hashes[places].view(np.int64), places


def _tokenise(texts: list[str], words: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Give each token of all texts a number, new ones in the order in which they come; ids and offsets as above."""
    ids: list[np.ndarray] = [np.empty(0, np.int64)]
    for text in texts:
        tokens = _TOKENS.findall(text.lower().replace("<br />", " "))
        ids.append(np.fromiter((words.setdefault(token, len(words)) for token in tokens), np.int64, len(tokens)))
    return np.concatenate(ids), np.cumsum([len(some) for some in ids])


def _grams(ids: np.ndarray, offsets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each order the hashes of the n-grams and the number of the text that each is in."""
    text_of = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    for grams, places in ngram_hashes(ids, offsets, _ORDERS):
        yield grams, text_of[places]


def _in_two_texts(grams: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Return the hashes that come in at least two texts, ascending."""
    by_gram = np.argsort(grams, kind="stable")  # and by text, which was ascending before
    grams, text = grams[by_gram], text[by_gram]
    again = (grams[1:] == grams[:-1]) & (text[1:] != text[:-1])
    return np.unique(grams[1:][again])


def _features(grams: np.ndarray, text: np.ndarray, known: np.ndarray, texts: int) -> "csr_matrix":
    """Which text contains which known n-gram, 0 or 1, of shape (texts, known)."""
    from scipy.sparse import csr_matrix

    column = np.searchsorted(known, grams)
    found = column < len(known)
    found[found] = known[column[found]] == grams[found]
    ones = np.ones(int(found.sum()), np.float32)
    matrix = csr_matrix((ones, (text[found], column[found])), shape=(texts, len(known)))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
