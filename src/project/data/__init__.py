"""LightningDataModules and what they are made of. Importing this is cheap: torchvision and Pillow are loaded on use."""

from project.data.images import Augment, ImageData

__all__ = ["Augment", "ImageData"]
