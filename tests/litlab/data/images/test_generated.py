import torch
from torch import nn

from litlab.data.images import generated
from litlab.data.images.generated import make_images


def measure_accuracy(network: nn.Module, images, labels, epochs: int, lr: float) -> float:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(network.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * 20)
    for _ in range(epochs):
        for batch in torch.randperm(2000).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return (network.eval()(images[2000:]).argmax(1) == labels[2000:]).float().mean().item()


def test_they_must_be_learned(monkeypatch):
    """A linear model gets little above chance (1/4), seconds of convolutions get far."""
    monkeypatch.setattr(generated, "COUNTS", {"train": 2000, "test": 500})
    images, labels = map(torch.from_numpy, make_images(4, (3, 16, 16))[:2])
    images = images.permute(0, 3, 1, 2).float() / 64 - 2
    torch.manual_seed(0)
    convolutions = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveMaxPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 4)),
    )
    assert 0.45 < measure_accuracy(convolutions, images, labels, epochs=4, lr=2e-2) < 0.95
    linear = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    assert measure_accuracy(linear, images, labels, epochs=3, lr=1e-3) < 0.4
