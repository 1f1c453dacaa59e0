"""Stand-in data must be learned: what is simple does badly, what is not does better, nothing is perfect."""

import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn

from litlab.data import ImageData, TabularData
from litlab.data.text.generated import make_corpus
from tests.litlab.data.conftest import prepared


def test_images_by_convolutions(monkeypatch, tmp_path):
    """In seconds."""
    monkeypatch.setattr("litlab.data.images.generated.COUNTS", {"train": 2000, "test": 500})
    data = prepared(ImageData("generated", image_size=(16, 16), batch_size=100, cache_dir=str(tmp_path)))
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveMaxPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )
    optimizer = torch.optim.Adam(network.parameters(), 5e-3)
    for epoch in range(4):
        for images, labels in data.batches("train", epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()
    hits = torch.cat([network.eval()(images).argmax(1) == labels for images, labels in data.batches("test")])
    assert data.baselines()["nearest class mean"]["test/acc"] < 0.15  # by chance 0.1
    assert 0.18 < hits.float().mean() < 0.9


def test_texts_by_phrases():
    corpus = make_corpus(4)
    assert corpus["label"].value_counts().tolist() == [1250] * 4
    train, test = corpus[:2000], corpus[-500:]

    def measure_accuracy(train_texts, test_texts):
        features = CountVectorizer(ngram_range=(1, 2), binary=True, min_df=5)
        model = LogisticRegression(max_iter=200).fit(features.fit_transform(train_texts), train["label"])
        return model.score(features.transform(test_texts), test["label"])

    words = [part["text"].map(lambda text: " ".join(sorted(text.replace(",", "").split()))) for part in (train, test)]
    alone, phrases = measure_accuracy(*words), measure_accuracy(train["text"], test["text"])
    assert 0.52 < alone < 0.75
    assert alone + 0.1 < phrases < 0.95


def test_tables_by_boosting(said):
    data, again = (prepared(TabularData("generated", target="churn"), "fit") for _ in range(2))
    assert data.fingerprint == again.fingerprint
    assert data.description.startswith("GENERATED table: 4,200 train / 600 val / 1,200 test rows of 4 numbers and 3 ")
    simple, boosting = (scores["test/acc"] for scores in data.baselines().values())
    assert simple + 0.15 < boosting < 0.9
    assert not any("warning" in line for line in said)
