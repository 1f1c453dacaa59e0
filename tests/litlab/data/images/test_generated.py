import torch
from torch import nn

from litlab.data.images import generated
from litlab.data.images.generated import make_images


def test_they_must_be_learned(monkeypatch):
    """A linear model gets little above chance (1/4), seconds of convolutions get far."""
    monkeypatch.setattr(generated, "COUNTS", {"train": 2000, "test": 500})
    images, labels = map(torch.from_numpy, make_images(4, (3, 16, 16))[:2])
    images = images.permute(0, 3, 1, 2).float() / 64 - 2
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    convolutions = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveMaxPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 4)),
    )
    for network, rate, least, most in ((linear, 1e-3, 0.0, 0.4), (convolutions, 5e-3, 0.45, 0.95)):
        optimizer = torch.optim.Adam(network.parameters(), rate)
        for batch in torch.arange(2000).repeat(4).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
            optimizer.step()
        accuracy = (network.eval()(images[2000:]).argmax(1) == labels[2000:]).float().mean()
        assert least < accuracy < most
