import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from litlab.data.text.generated import make_corpus


def test_words_alone_are_not_enough_but_phrases_help():
    """Words, then words and phrases, each clearly better than chance; none perfect."""
    corpus = make_corpus(4)
    assert np.bincount(corpus["label"]).tolist() == [1250] * 4
    train, test = corpus[:2000], corpus[-500:]

    def measure_accuracy(train_texts, test_texts):
        features = CountVectorizer(ngram_range=(1, 2), binary=True, min_df=5)
        model = LogisticRegression(max_iter=200).fit(features.fit_transform(train_texts), train["label"])
        return model.score(features.transform(test_texts), test["label"])

    words = [part["text"].map(lambda text: " ".join(sorted(text.replace(",", "").split()))) for part in (train, test)]
    alone, phrases = measure_accuracy(*words), measure_accuracy(train["text"], test["text"])
    assert 0.52 < alone < 0.75
    assert alone + 0.1 < phrases < 0.95
