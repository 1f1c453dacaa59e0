"""What a model must know of its data, such as the number of classes, comes from the data."""

from collections.abc import Iterator

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule

from litlab.tasks.base import is_fact
from litlab.util.class_blocks import imported


def provides(data: Namespace, name: str) -> bool:
    """Return whether the class of a DataModule's config has a fact of a name, see `is_fact`."""
    return is_fact(imported(data.class_path), name)


def fill_from_data(model: Namespace, data: Namespace, built: LightningDataModule) -> None:
    """Give settings that are null, and have the name of a fact of the DataModule, its value.

    Args:
        model: The section ``model``; settings of its network and its metrics are filled, too.
        data: The section ``data``.
        built: The DataModule that it describes.
    """
    for settings in _sized_by_data(model):
        for name, value in vars(settings).items():
            if value is None and provides(data, name):
                settings[name] = getattr(built, name)


def _sized_by_data(model: Namespace) -> Iterator[Namespace]:
    """Yield the settings of a model, its network and its metrics."""
    own = model.get("init_args") or Namespace()
    for part in (model, own.get("network"), *(own.get("metrics") or {}).values()):
        if isinstance(part, Namespace) and isinstance(part.get("init_args"), Namespace):
            yield part.init_args
