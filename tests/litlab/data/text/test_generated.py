from zlib import crc32

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from litlab.data.text.generated import generated_class_names, generated_texts


def test_the_same_for_the_same_seed():
    assert generated_texts(50, 4, 3) == generated_texts(50, 4, 3)
    assert generated_texts(50, 4, 3)[0] != generated_texts(50, 4, 4)[0]
    # A number to be changed with the generator only: results on generated texts are compared over the years.
    assert crc32(repr(generated_texts(50, 4, 3)).encode()) == 70188571


@pytest.mark.parametrize("classes", [2, 4])
def test_classes_come_equally_often(classes):
    texts, labels = generated_texts(400, classes)
    assert np.bincount(labels).tolist() == [400 // classes] * classes
    assert len(generated_class_names(classes)) == classes
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) >= 6
    assert max(lengths) > 3 * min(lengths)


def test_other_numbers_of_classes_are_refused():
    with pytest.raises(ValueError, match="num_classes: 3 is not 2 or 4"):
        generated_texts(10, 3)


def test_words_alone_are_not_enough_but_phrases_help():
    """Most frequent class .5; words, then words and phrases, each clearly better; none perfect."""
    texts, labels = generated_texts(2000, 2, 0)
    test_texts, test_labels = generated_texts(500, 2, 1)
    words = [" ".join(sorted(text.replace(",", " ").replace(".", " ").split())) for text in (*texts, *test_texts)]

    def accuracy(train, test):
        features = CountVectorizer(ngram_range=(1, 2), binary=True)
        model = LogisticRegression(max_iter=1000).fit(features.fit_transform(train), labels)
        return model.score(features.transform(test), test_labels)

    alone, phrases = accuracy(words[:2000], words[2000:]), accuracy(texts, test_texts)
    assert 0.52 < alone < 0.75
    assert alone + 0.1 < phrases < 0.95


def test_negation_turns_the_judgement_around():
    texts, labels = generated_texts(2000, 2, 0)
    share = {}
    for phrase in ("lovely", "not lovely"):
        hits = [label for text, label in zip(texts, labels, strict=True) if f" {phrase}" in text.replace(",", "")]
        share[phrase] = np.mean(hits)
    assert share["not lovely"] < 0.3 < 0.55 < share["lovely"]
