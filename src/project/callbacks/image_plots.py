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
        self._samples: list[tuple[Tensor, int, int, float]] = []  # image, true class, predicted class, its probability
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
        chosen = spread(self.images, len(self._samples), self._batches, batches, len(images)).to(images.device)
        self._batches += 1
        if len(chosen):
            probability, predicted = logits[chosen].float().softmax(dim=1).max(dim=1)
            self._samples += zip(
                images[chosen].float().cpu(),
                labels[chosen].tolist(),
                predicted.tolist(),
                probability.tolist(),
                strict=True,
            )

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw, log and save."""
        folder = run_folder(trainer)  # on every rank
        if self._samples:
            data = getattr(trainer, "datamodule", None)
            images = [image for image, *_ in self._samples]
            if isinstance(data, ImageFacts):
                images = [denormalised(image, data.mean, data.std) for image in images]
            else:
                images = within_0_and_1(images)
            samples = [(image, *facts[1:]) for image, facts in zip(images, self._samples, strict=True)]
            figure = draw_images(samples, class_names(trainer, self._classes))
            publish_figure(trainer, folder, "test_images", figure)


def draw_images(samples: Sequence[tuple[Tensor, int, int, float]], names: list[str]) -> "Figure":
    """Draw images in a grid, each with its prediction and probability; wrong ones in red, with the true class.

    Args:
        samples: Image (channel, height, width) from 0 to 1, true class, predicted class and its probability, for each.
        names: Name of each class.
    """
    from matplotlib.figure import Figure

    columns = min(8, len(samples))
    rows = -(-len(samples) // columns)
    figure = Figure(figsize=(1.5 * columns, 1.9 * rows), dpi=120, layout="constrained")
    for number, (image, label, predicted, probability) in enumerate(samples):
        axes = figure.add_subplot(rows, columns, number + 1)
        pixels = image.permute(1, 2, 0).numpy()
        axes.imshow(pixels if pixels.shape[2] == 3 else pixels[:, :, 0], cmap="gray", vmin=0.0, vmax=1.0)
        axes.set_xticks([])
        axes.set_yticks([])
        right = label == predicted
        title = f"{_short(names[predicted])} {probability:.0%}"
        axes.set_title(
            title if right else f"{title}\nis {_short(names[label])}", fontsize=8, color="k" if right else "r"
        )
        for spine in axes.spines.values():
            spine.set(color="k" if right else "r", linewidth=0.5 if right else 2.5)
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
