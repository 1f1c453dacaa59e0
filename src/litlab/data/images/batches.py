"""What batches of images become, however they are read: augmented, normalised, predicted, served."""

from abc import abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from litlab.data.bad_rows import Policy
from litlab.data.images.augment import Augment, augmented, centre, normalise
from litlab.data.images.decode import ImageFormat
from litlab.data.images.metadata import ImageMetadata
from litlab.data.images.predictions import ImageFiles, find_images, readable
from litlab.data.images.serving import ImageServing
from litlab.data.module import ExperimentData
from litlab.data.table import write_classes


class ImageBatches(ExperimentData[ImageMetadata]):
    """A DataModule whose batches are uint8 images, of shape (batch, channel, height, width), with labels and numbers.

    A subclass sets `augment` and `bad_rows`, and defines `class_names` and `image_shape`.
    """

    item = "images"
    input_kinds = "a folder, a file or a pattern"
    metadata_type = ImageMetadata
    augment: Augment
    bad_rows: Policy
    _predicted: list[Path]

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """Name of each class, in the order of the labels."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of the images that the model gets."""

    @property
    def mean(self) -> list[float]:
        """Mean of each channel, of pixels from 0 to 1, that normalisation subtracts; known after `setup`."""
        return self.known_metadata.mean

    @property
    def std(self) -> list[float]:
        """Standard deviation of each channel, of pixels from 0 to 1, that normalisation divides by; after `setup`."""
        return self.known_metadata.std

    @override
    def open_input(self, source: str) -> ImageFiles:
        metadata = self.known_metadata
        _, height, width = metadata.image_shape
        form = ImageFormat(height, width, metadata.mode, metadata.resize, convert=True)
        self._predicted = find_images(source)
        # Found out here: an error in a worker would come with its traceback.
        if self.bad_rows == "drop" or self.loading.num_workers:
            self._predicted = readable(self._predicted, form, source, self.bad_rows)
        return ImageFiles(self._predicted, form, source)

    @override
    def transform(self, batch: dict[str, Tensor], epoch: int | None) -> Any:
        """Augment (in training only) and normalise a batch.

        Returns:
            Images, float32 of shape (batch, channel, height, width), and labels, int64 of shape (batch,); in
            prediction the images alone.
        """
        images = batch["image"]
        size = self.image_shape[1:]
        mean, std = (_on_device(tuple(values), images.device) for values in (self.mean, self.std))
        if epoch is not None:
            images = augmented(images, batch["index"], self.augment, size, mean, std, seed=self.seed, epoch=epoch)
        else:  # padded are the training images only; somebody may evaluate on them
            images = normalise(centre(images, *size), mean, std)
        return (images, batch["label"]) if "label" in batch else images

    @override
    def serving(self) -> ImageServing:
        return ImageServing(self.known_metadata)

    def write_predictions(self, outputs: list[Tensor], path: str) -> None:
        """Write a CSV file with a row per image of `predict_input`: its class, and the probability of every class.

        Args:
            outputs: Probabilities of the batches in order, each of shape (batch, class).
            path: The file; one that is there is replaced.

        Raises:
            UserError: A probability is not finite, or the file can't be written.
        """
        probabilities = torch.cat([output.cpu() for output in outputs])
        write_classes(Path(path), {"file": self._predicted}, self._predicted, self.class_names, probabilities)


@lru_cache(maxsize=8)
def _on_device(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a constant of all batches: making it anew for each would wait for a GPU."""
    return torch.tensor(values, device=device)
