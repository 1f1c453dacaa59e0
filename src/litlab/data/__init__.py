"""LightningDataModules and what they are made of. Importing this is cheap: torchvision and Pillow are loaded on use."""

from litlab.data.images import Augment, ImageData
from litlab.data.module import ExperimentData
from litlab.data.series import SeriesData
from litlab.data.text import TextData

__all__ = ["Augment", "ExperimentData", "ImageData", "SeriesData", "TextData"]
