"""Plain networks: nothing of Lightning in here."""

from project.networks.segment_rnn import SegmentRNN
from project.networks.text_transformer import TextTransformer
from project.networks.vgg import VGG
from project.networks.whitened_cnn import WhitenedCNN
from project.networks.window_forecast import WindowForecast

__all__ = ["VGG", "SegmentRNN", "TextTransformer", "WhitenedCNN", "WindowForecast"]
