"""LightningDataModules and what they are made of. Importing this is cheap: torchvision and Pillow are loaded on use."""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.images import Augment, ImageData
    from litlab.data.images.augment import uniform
    from litlab.data.module import ExperimentData
    from litlab.data.predictions import write_classes
    from litlab.data.public import PublicFile
    from litlab.data.series.datamodule import PublicSeries, SeriesData
    from litlab.data.serving import ClassMetadata, Metadata, Serving, TensorSpec
    from litlab.data.tables.datamodule import TabularData
    from litlab.data.text import TextData
    from litlab.util.progress import progress_bar

__all__ = [
    "Augment",
    "ClassMetadata",
    "ExperimentData",
    "ImageData",
    "Metadata",
    "PublicFile",
    "PublicSeries",
    "SeriesData",
    "Serving",
    "TabularData",
    "TensorSpec",
    "TextData",
    "progress_bar",
    "uniform",
    "write_classes",
]

__getattr__ = export_lazily(__name__)
