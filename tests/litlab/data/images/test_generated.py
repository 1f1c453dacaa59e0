import pytest
import torch
from torch import nn

from litlab.data.images.generated import generated_class_names, generated_images


def test_same_arguments_same_images():
    images, labels = generated_images(64, 10, (3, 16, 16), seed=1)
    again, labels_again = generated_images(64, 10, (3, 16, 16), seed=1)
    assert images.equal(again)
    assert labels.equal(labels_again)
    other, _ = generated_images(64, 10, (3, 16, 16), seed=2)
    assert not images.equal(other)


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    generated_images(10)
    assert torch.rand(1) == expected


@pytest.mark.parametrize(
    ("classes", "shape"), [(2, (1, 28, 28)), (10, (3, 32, 32)), (100, (3, 20, 30)), (37, (1, 9, 9))]
)
def test_any_shape_and_number_of_classes(classes, shape):
    images, labels = generated_images(classes * 3, classes, shape)
    assert images.shape == (classes * 3, *shape)
    assert images.dtype == torch.uint8
    assert torch.bincount(labels).tolist() == [3] * classes
    assert images.float().std((1, 2, 3)).min() > 5  # there is something to see on each
    names = generated_class_names(classes)
    assert len(set(names)) == classes


@pytest.mark.parametrize("classes", [1, 101])
def test_too_many_classes(classes):
    with pytest.raises(ValueError, match="is not from 2 to 100"):
        generated_images(10, classes)


def test_labels_are_in_random_order():
    _, labels = generated_images(1000)
    assert (labels[1:] >= labels[:-1]).float().mean() < 0.7


def _accuracy(network: nn.Module, images, labels, test_images, test_labels, epochs: int, lr: float) -> float:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(network.parameters(), lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=epochs * (len(images) // 100))
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(100):
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        return (network(test_images).argmax(1) == test_labels).float().mean().item()


@pytest.fixture
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network gains nothing from more, and loses much on a busy machine
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_they_must_be_learned():
    """A linear model and the colours alone get little above chance (1/4), seconds of convolutions get far."""
    images, labels = generated_images(3000, 4, (3, 16, 16), seed=0)
    test_images, test_labels = generated_images(1000, 4, (3, 16, 16), seed=1)
    images, test_images = (x.float() / 64 - 2 for x in (images, test_images))
    torch.manual_seed(0)
    convolutions = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveMaxPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 4)),
    )
    accuracy = _accuracy(convolutions, images, labels, test_images, test_labels, epochs=6, lr=1e-2)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    linear_accuracy = _accuracy(linear, images, labels, test_images, test_labels, epochs=3, lr=1e-3)
    colours, test_colours = (torch.cat((x.mean((2, 3)), x.std((2, 3))), 1) for x in (images, test_images))
    network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
    colour_accuracy = _accuracy(network, colours, labels, test_colours, test_labels, epochs=5, lr=1e-2)
    assert 0.5 < accuracy < 0.95
    assert linear_accuracy < 0.4
    assert colour_accuracy < 0.45
