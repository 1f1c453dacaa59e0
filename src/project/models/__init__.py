"""LightningModules."""

from project.models.cifar_cnn import CifarCNN
from project.models.classifier import Classifier

__all__ = ["CifarCNN", "Classifier"]
