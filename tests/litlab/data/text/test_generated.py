import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from litlab.data.text.generated import make_texts, name_classes


@pytest.mark.parametrize("classes", [2, 4])
def test_texts_repeat_and_classes_come_equally_often(classes):
    texts, labels = make_texts(400, classes, 3)
    assert (texts, labels) == make_texts(400, classes, 3)
    assert texts != make_texts(400, classes, 4)[0]
    assert np.bincount(labels).tolist() == [400 // classes] * classes
    assert len(set(name_classes(classes))) == classes
    lengths = [len(text.split()) for text in texts]
    assert max(lengths) > 3 * min(lengths) >= 18


def test_words_alone_are_not_enough_but_phrases_help():
    """Most frequent class .5; words, then words and phrases, each clearly better; none perfect."""
    texts, labels = make_texts(2000, 2, 0)
    test_texts, test_labels = make_texts(500, 2, 1)
    words = [" ".join(sorted(text.replace(",", " ").replace(".", " ").split())) for text in (*texts, *test_texts)]

    def accuracy(train, test):
        features = CountVectorizer(ngram_range=(1, 2), binary=True)
        model = LogisticRegression(max_iter=1000).fit(features.fit_transform(train), labels)
        return model.score(features.transform(test), test_labels)

    alone, phrases = accuracy(words[:2000], words[2000:]), accuracy(texts, test_texts)
    assert 0.52 < alone < 0.75
    assert alone + 0.1 < phrases < 0.95
