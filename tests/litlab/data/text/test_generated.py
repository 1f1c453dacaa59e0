import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from litlab.data.text.generated import make_corpus


@pytest.mark.parametrize("classes", [2, 4])
def test_texts_repeat_and_classes_come_equally_often(classes):
    corpus = make_corpus(classes)
    assert corpus.equals(make_corpus(classes))
    assert np.bincount(corpus["label"]).tolist() == [5000 // classes] * classes
    lengths = corpus["text"].str.split().str.len()
    assert lengths.max() > 3 * lengths.min() >= 18


def test_words_alone_are_not_enough_but_phrases_help():
    """Most frequent class .5; words, then words and phrases, each clearly better; none perfect."""
    corpus = make_corpus(2)
    train, test = corpus[:2000], corpus[-500:]
    (texts, labels), (test_texts, test_labels) = ((part["text"], part["label"]) for part in (train, test))
    words = [" ".join(sorted(text.replace(",", " ").replace(".", " ").split())) for text in (*texts, *test_texts)]

    def accuracy(train, test):
        features = CountVectorizer(ngram_range=(1, 2), binary=True)
        model = LogisticRegression(max_iter=1000).fit(features.fit_transform(train), labels)
        return model.score(features.transform(test), test_labels)

    alone, phrases = accuracy(words[:2000], words[2000:]), accuracy(texts, test_texts)
    assert 0.52 < alone < 0.75
    assert alone + 0.1 < phrases < 0.95
