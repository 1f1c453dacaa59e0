"""LightningModules."""

from project.models.cifar_cnn import CifarCNN
from litlab.tasks.classifier import Classifier
from litlab.tasks.forecaster import Forecaster
from project.models.lstm_forecaster import LSTMForecaster
from project.models.transformer_classifier import TransformerClassifier

__all__ = ["CifarCNN", "Classifier", "Forecaster", "LSTMForecaster", "TransformerClassifier"]
