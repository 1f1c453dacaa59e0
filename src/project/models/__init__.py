"""LightningModules."""

from project.models.cifar_cnn import CifarCNN
from project.models.lstm_forecaster import LSTMForecaster
from project.models.transformer_classifier import TransformerClassifier

__all__ = ["CifarCNN", "LSTMForecaster", "TransformerClassifier"]
