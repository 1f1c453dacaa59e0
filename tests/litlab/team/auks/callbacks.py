"""Callbacks."""

from lightning.pytorch import Callback


class Pictures(Callback):
    """A callback with a setting.

    Args:
        images: A number.
    """

    def __init__(self, images: int = 4) -> None:
        self.images = images
