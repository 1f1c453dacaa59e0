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


def test_class_names_are_the_published_ones():
    assert FashionMNISTData.public.class_names == tuple(torchvision.datasets.FashionMNIST.classes)
    assert CIFAR10Data.public.class_names[:3] == ("airplane", "automobile", "bird")
    assert len(CIFAR100Data.public.class_names) == 100
    assert list(CIFAR100Data.public.class_names) == sorted(CIFAR100Data.public.class_names)
