"""LightningDataModules and what they are made of. Importing this is cheap: torchvision and Pillow
are loaded on use.
"""

from typing import TYPE_CHECKING

from litlab.util.lazy import export_lazily

if TYPE_CHECKING:
    from litlab.data.draws import uniform
    from litlab.data.images.augment import Augment, move_images
    from litlab.data.images.datamodule import ImageData
    from litlab.data.images.public import PublicImages
    from litlab.data.module import ExperimentData
    from litlab.data.predictions import write_outputs
    from litlab.data.public import PublicFile
    from litlab.data.series.datamodule import PublicSeries, SeriesData
    from litlab.data.serving import Metadata, Sample, Serving, TensorSpec
    from litlab.data.store import progress_bar
    from litlab.data.tables.datamodule import TabularData
    from litlab.data.target import Classes, Labels, Numbers, Target
    from litlab.data.target_metadata import TargetMetadata
    from litlab.data.text.datamodule import TextData
    from litlab.data.text.reading import PublicTexts
    from litlab.data.text.tokenizer import PADDING, UNKNOWN
    from litlab.data.user_data import UserData

__getattr__ = export_lazily(__name__)
