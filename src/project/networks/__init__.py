"""Plain networks: nothing of Lightning in here."""

from project.networks.vgg import VGG
from project.networks.whitened_cnn import WhitenedCNN

__all__ = ["VGG", "WhitenedCNN"]
