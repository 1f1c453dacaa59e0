"""Images: public sets, folders and CSV files; decoding, cache, augmentation, predictions."""

from litlab.data.images.augment import Augment
from litlab.data.images.datamodule import ImageData

__all__ = ["Augment", "ImageData"]
