import pytest
import torch
from torch import nn

from litlab.data.images import generated
from litlab.data.images.generated import make_images


@pytest.fixture(autouse=True)
def _counts(monkeypatch):
    monkeypatch.setattr(generated, "COUNTS", {"train": 2000, "test": 1000})


@pytest.mark.parametrize(("classes", "shape"), [(2, (1, 28, 28)), (100, (3, 20, 30)), (37, (1, 9, 9))])
def test_any_shape_and_number_of_classes(classes, shape, monkeypatch):
    monkeypatch.setattr(generated, "COUNTS", {"train": classes * 2, "test": classes})
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    images, labels, given = make_images(classes, shape)
    assert torch.rand(1) == expected, "the global generator is left alone"
    assert (images.reshape(-1, *shape[1:], shape[0]).shape[0], images.dtype) == (classes * 3, "uint8")
    assert torch.from_numpy(labels).bincount().tolist() == [3] * classes
    assert given.tolist() == ["train"] * classes * 2 + ["test"] * classes
    assert images.reshape(classes * 3, -1).std(1).min() > 5  # there is something to see on each
    assert (make_images(classes, shape)[0] == images).all()


def _accuracy(network: nn.Module, inputs, labels, epochs: int, lr: float) -> float:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(network.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * 20)
    for _ in range(epochs):
        for batch in torch.randperm(2000).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        return (network(inputs[2000:]).argmax(1) == labels[2000:]).float().mean().item()


def test_they_must_be_learned():
    """A linear model and the colours alone get little above chance (1/4), seconds of convolutions get far."""
    images, labels = map(torch.from_numpy, make_images(4, (3, 16, 16))[:2])
    images = images.permute(0, 3, 1, 2).float() / 64 - 2
    torch.manual_seed(0)
    convolutions = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveMaxPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 4)),
    )
    assert 0.5 < _accuracy(convolutions, images, labels, epochs=6, lr=1e-2) < 0.95
    assert _accuracy(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), images, labels, epochs=3, lr=1e-3) < 0.4
    colours = torch.cat((images.mean((2, 3)), images.std((2, 3))), 1)
    network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    assert _accuracy(network, colours, labels, epochs=5, lr=1e-2) < 0.45
