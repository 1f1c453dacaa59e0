"""The nearest class mean, against scikit-learn's."""

import pytest
import torch
from sklearn.metrics import f1_score
from sklearn.neighbors import NearestCentroid

from litlab.data.images import ImageData
from litlab.data.images.baselines import nearest_class_mean
from litlab.data.images.memory import StoredImages


def _images(count: int, seed: int) -> StoredImages:
    """Of three classes (the third of four has none) whose brightness differs a little."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 3])[torch.randint(3, (count,), generator=generator)]
    pixels = torch.randint(0, 200, (count, 3, 4, 4), generator=generator) + 4 * labels[:, None, None, None]
    return StoredImages(pixels.to(torch.uint8), labels)


def test_it_is_that_of_scikit_learn():
    train, test = _images(2500, 0), _images(2200, 1)  # more than a block
    model = NearestCentroid().fit(train.images.flatten(1).double().numpy() / 255, train.labels.numpy())
    expected = model.predict(test.images.flatten(1).double().numpy() / 255)
    scores = nearest_class_mean(train, test, num_classes=4)
    assert scores["test/acc"] == pytest.approx((expected == test.labels.numpy()).mean(), abs=1e-3)
    assert scores["test/f1"] == pytest.approx(f1_score(test.labels, expected, average="macro"), abs=1e-3)
    assert 0.4 < scores["test/acc"] < 0.9


def test_it_learns_from_the_training_rows_and_counts_the_test_rows(images, tmp_path):
    data = ImageData("folder", str(images), cache_dir=str(tmp_path))
    data.prepare_data()
    data.setup()
    assert data.baselines()["nearest class mean"]["test/acc"] > 0.9  # the classes differ in brightness
