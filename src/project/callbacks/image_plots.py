"""Sample predictions of an image classifier."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import ImageFacts, class_names, from_test_step, publish_figure, run_folder, spread
from litlab.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES = 1.5  # width of an image and the space around it
CELL = 1.25  # height of an image with its two lines of text, in widths


class ImagePlots(Callback):
    """Draw a grid of images with their predictions at the end of each test.

    It goes to the loggers as a picture and to the run folder as ``test_images.png``. The images are spread evenly over
    the test set (over the first rank's share of it). Class names and normalisation are the data module's
    ``class_names``, ``mean`` and ``std`` (lists, one value a channel, for pixels from 0 to 1), where it has them.
    Without ``mean`` and ``std``, pixels from 0 to 1 are shown as they are, others from the least of all to the most.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is ``(images, labels)``, images
    (batch, channel, height, width) with 1 or 3 channels, labels (batch,).

    Args:
        images: Number of test images in the grid.

    Raises:
        UserError: Where the model's ``test_step`` returns no ``logits``, or the batches are not images.
    """

    def __init__(self, images: int = 32) -> None:
        self.images = images
        self._samples: list[tuple[Tensor, ...]] = []  # image, true class, predicted class, its probability
        self._batches = 0
        self._classes = 0

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the previous test."""
        self._samples = []
        self._batches = 0

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep a few images."""
        logits = from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
        images, labels = batch
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise UserError(
                "ImagePlots: a test batch has no images (batch, channel, height, width); "
                "remove ImagePlots from trainer.callbacks"
            )
        if not trainer.is_global_zero:
            return
        self._classes = logits.shape[1]
        batches = sum(trainer.num_test_batches)
        chosen = spread(self.images, len(self._samples), self._batches, batches, len(images))
        self._batches += 1
        if len(chosen):  # left on the device, which nothing waits for
            chosen = chosen.to(images.device, non_blocking=True)
            probability, predicted = logits[chosen].float().softmax(dim=1).max(dim=1)
            self._samples += zip(images[chosen].float(), labels[chosen], predicted, probability, strict=True)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw, log and save."""
        folder = run_folder(trainer)  # on every rank
        if self._samples:
            data = getattr(trainer, "datamodule", None)
            images = [image.cpu() for image, *_ in self._samples]
            if isinstance(data, ImageFacts):
                images = [denormalised(image, data.mean, data.std) for image in images]
            else:
                images = within_0_and_1(images)
            samples = [
                (image, int(label), int(predicted), float(probability))
                for image, (_, label, predicted, probability) in zip(images, self._samples, strict=True)
            ]
            figure = draw_images(samples, class_names(trainer, self._classes))
            publish_figure(trainer, folder, "test_images", figure)


def draw_images(samples: Sequence[tuple[Tensor, int, int, float]], names: list[str]) -> "Figure":
    """Draw images in a grid, each with its prediction and probability; wrong ones in red, with the true class.

    Args:
        samples: Image (channel, height, width) from 0 to 1, true class, predicted class and its probability, for each.
        names: Name of each class.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    columns = min(8, len(samples))
    rows = -(-len(samples) // columns)
    figure = Figure(figsize=(INCHES * columns, INCHES * CELL * rows), dpi=120)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))  # one for all: one for each image takes four times as long to draw
    axes.set_axis_off()
    for number, (image, label, predicted, probability) in enumerate(samples):
        row, column = divmod(number, columns)
        pixels = image.permute(1, 2, 0).numpy()
        height, width = (0.92 * size / max(pixels.shape[:2]) for size in pixels.shape[:2])
        left, top = column + (1 - width) / 2, (row + 1) * CELL - 0.04 - height
        shown = pixels if pixels.shape[2] == 3 else pixels[:, :, 0]
        extent = (left, left + width, top + height, top)
        axes.imshow(shown, cmap="gray", vmin=0.0, vmax=1.0, extent=extent)
        right = label == predicted
        color, line = ("k", 0.5) if right else ("r", 2.5)
        axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=color, linewidth=line))
        title = f"{_short(names[predicted])} {probability:.0%}" + ("" if right else f"\nis {_short(names[label])}")
        axes.text(column + 0.5, top - 0.04, title, ha="center", va="bottom", fontsize=8, color=color)
    axes.set(xlim=(0, columns), ylim=(rows * CELL, 0))
    return figure


def denormalised(image: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Bring a normalised image back to pixels from 0 to 1.

    Args:
        image: Shape (channel, height, width).
        mean: Mean of each channel, which normalisation took away.
        std: Standard deviation of each channel, which it divided by.
    """
    shift, factor = (torch.tensor(values).reshape(-1, 1, 1) for values in (mean, std))
    return (image * factor + shift).clamp(0.0, 1.0)


def within_0_and_1(images: list[Tensor]) -> list[Tensor]:
    """Bring images of an unknown normalisation to values from 0 to 1, all in the same way."""
    low, high = min(float(image.min()) for image in images), max(float(image.max()) for image in images)
    if low >= 0 and high <= 1:
        return images
    return [(image - low) / max(high - low, 1e-6) for image in images]


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"
