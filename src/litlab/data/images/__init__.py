"""Images: folders, CSV files and public sets; decoding, cache, augmentation, predictions."""

from litlab.data.images.augment import Augment
from litlab.data.images.datamodule import ImageData
from litlab.data.images.metadata import ImageMetadata
from litlab.data.images.public import PublicImages
from litlab.data.images.steps import AugmentStep, Draw
from litlab.data.images.streamed import StreamedImages

__all__ = ["Augment", "AugmentStep", "Draw", "ImageData", "ImageMetadata", "PublicImages", "StreamedImages"]
