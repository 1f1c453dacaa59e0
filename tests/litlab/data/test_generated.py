"""Stand-in data must be learned: what is simple does badly, what is not does better, nothing is perfect."""

import pytest
import torch

from litlab.data import ImageData, TabularData, TextData
from tests.litlab.data.conftest import prepared


def test_images_by_what_does_not_depend_on_place_and_colours(monkeypatch, tmp_path):
    monkeypatch.setattr("litlab.data.images.generated.COUNTS", {"train": 2000, "test": 500})
    data = prepared(
        ImageData("generated", image_size=(16, 16), val_fraction=0, batch_size=500, cache_dir=str(tmp_path))
    )
    (train, labels), (test, truth) = (next(data.batches(split)) for split in ("train", "test"))
    train, test = (torch.fft.rfft2(images).abs().mean(1).log().flatten(1) for images in (train, test))
    means = torch.stack([train[labels == label].mean(0) for label in range(10)])
    accuracy = (torch.cdist(test, means).argmin(1) == truth).float().mean()
    assert data.baselines()["nearest class mean"]["test/acc"] < 0.15  # by chance 0.1
    assert 0.4 < accuracy < 0.9


@pytest.mark.parametrize(
    ("kind", "settings", "least", "most"), [(TextData, {}, 0.6, 0.9), (TabularData, {"target": "churn"}, 0.7, 0.9)]
)
def test_texts_and_tables_by_their_baselines(tmp_path, monkeypatch, said, kind, settings, least, most):
    monkeypatch.setattr("litlab.data.text.generated.SIZES", {"train": 1000, "test": 300})
    monkeypatch.chdir(tmp_path)
    data = prepared(kind("generated", **settings), "fit")
    assert least < [*data.baselines().values()][-1]["test/acc"] < most
    assert data.fingerprint == kind("generated", **settings).fingerprint
    assert data.description.startswith(f"GENERATED {data.kind}: ")
    assert not any("warning" in line for line in said)
