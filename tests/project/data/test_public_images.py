"""CIFAR and MNIST as torchvision knows them."""

import pytest
import torchvision.datasets

from project.data.cifar import CIFAR10Data, CIFAR100Data
from project.data.mnist import FashionMNISTData, MNISTData


@pytest.mark.parametrize("data", [CIFAR10Data, CIFAR100Data, MNISTData, FashionMNISTData])
def test_files_of_images_are_torchvisions(data):
    public = data.public
    reader = getattr(torchvision.datasets, public.reader)
    names = [f"{public.reader}/raw/{name}" for name, _ in reader.resources] if "MNIST" in public.reader else None
    assert list(public.file_names) == (names or [reader.filename])
