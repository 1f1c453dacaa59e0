"""Images: public sets, folders and CSV files; decoding, cache, augmentation, predictions."""

from project.data.images.augment import Augment
from project.data.images.datamodule import ImageData

__all__ = ["Augment", "ImageData"]
