"""The tiny images, which are larger and coloured: the network is sized by them."""

from tests.project.short.CIFAR10Data import settings as settings
