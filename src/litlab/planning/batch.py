"""A training batch for a plan, without a download."""

from typing import Any

from lightning.pytorch import LightningDataModule

from litlab.data.cache import is_whole
from litlab.data.module import ExperimentData


def without_download(data: LightningDataModule) -> None:
    """Let generated data take the place of a public data set that is not prepared: a plan needs its shapes only."""
    if isinstance(data, ExperimentData):
        is_public = data.hparams.get("dataset", "") is None and getattr(data, "public", None) is not None
        if is_public and not all(is_whole(folder) for folder in data.caches()):
            data.generated = True


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
    return batch, "of generated data" if data.generated else "of the data"
