"""A training batch for a plan, without a download."""

from typing import Any

from lightning.pytorch import LightningDataModule

from litlab.data.module import ExperimentData


def without_download(data: LightningDataModule) -> None:
    """Let generated data take the place of a public data set that has no cache here: a plan needs its shapes only.

    No processes load it, either.
    """
    if not isinstance(data, ExperimentData):
        return
    data.num_workers, data.prefetch_factor, data.persistent_workers = 0, None, False
    if data.public is not None and data.dataset is None:
        folder = data.cache_folder()
        data.generated = folder is None or not folder.is_dir()


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
    if data.dataset is not None or data.public is not None:
        return batch, f"from {data.source_name}"
    return batch, "of generated data" if data.generated else "of the data"
