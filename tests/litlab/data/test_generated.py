"""Stand-in data must be learned: what is simple does badly, what is not does better, nothing is perfect."""

import pytest
import torch
from torch import nn

from litlab.data import ImageData, TabularData, TextData
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
