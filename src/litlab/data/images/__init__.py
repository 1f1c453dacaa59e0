"""Images: folders, CSV files and public sets; decoding, cache, augmentation, predictions."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.images.augment import Augment
    from litlab.data.images.datamodule import ImageData
    from litlab.data.images.metadata import ImageMetadata
    from litlab.data.images.public import PublicImages
    from litlab.data.images.steps import AugmentStep, Draw
    from litlab.data.images.streamed import StreamedImages

__all__ = ["Augment", "AugmentStep", "Draw", "ImageData", "ImageMetadata", "PublicImages", "StreamedImages"]

__getattr__ = export_lazily(__name__)
