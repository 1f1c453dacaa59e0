"""Images: folders, tables and public sets; decoding, cache, augmentation, predictions."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.images.augment import Augment, AugmentStep, Draw
    from litlab.data.images.datamodule import ImageData
    from litlab.data.images.public import PublicImages
    from litlab.data.images.serving import ImageMetadata
    from litlab.data.images.streamed import StreamedImages

__all__ = ["Augment", "AugmentStep", "Draw", "ImageData", "ImageMetadata", "PublicImages", "StreamedImages"]

__getattr__ = export_lazily(__name__)
