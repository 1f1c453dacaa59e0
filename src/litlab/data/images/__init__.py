"""Images: folders, tables and public sets; decoding, cache, augmentation, predictions."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.images.augment import Augment
    from litlab.data.images.datamodule import ImageData
    from litlab.data.images.public import PublicImages

__all__ = ["Augment", "ImageData", "PublicImages"]

__getattr__ = export_lazily(__name__)
