"""The tiny images, which are larger and coloured: the network is sized by them."""

from tests.template.short.CIFAR10Data import settings as settings
