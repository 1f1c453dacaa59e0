"""LightningDataModules and what they are made of. Importing this is cheap: torchvision and Pillow are loaded on use."""

from project.data.images import Augment, ImageData
from project.data.series import SeriesData
from project.data.text import TextData

__all__ = ["Augment", "ImageData", "SeriesData", "TextData"]
