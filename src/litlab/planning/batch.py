"""A training batch for a plan, without a download."""

from typing import Any

from lightning.pytorch import LightningDataModule

from litlab.data.cache import is_whole
from litlab.data.loading import LoaderSettings
from litlab.data.module import ExperimentData
from litlab.data.selectable import SelectableData


def without_download(data: LightningDataModule) -> None:
    """Let generated data take the place of a public data set that has no cache here: a plan needs its shapes only.

    No processes load it, either.
    """
    if isinstance(data, ExperimentData):
        data.loading = LoaderSettings()
    if isinstance(data, SelectableData) and data.dataset is None:
        folders = list(data.caches())
        data.generated = not folders or not all(map(is_whole, folders))


def training_batch(data: LightningDataModule) -> tuple[Any, str]:
    """Return a batch as the model gets it, as large as batches get, and where it is from.

    Args:
        data: The run's DataModule.
    """
    if not isinstance(data, ExperimentData):
        data.prepare_data()
        data.setup("fit")
        batch = next(iter(data.train_dataloader()))
        return data.on_after_batch_transfer(data.on_before_batch_transfer(batch, 0), 0), "the first one"
    batch = data.widest(next(data.batches("train")))
    if isinstance(data, SelectableData):
        return batch, f"from {data.source_name}"
    return batch, "of generated data" if data.generated else "of the data"
