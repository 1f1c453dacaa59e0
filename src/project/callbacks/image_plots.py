"""Grids of test images with their predictions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.evaluation import class_names, from_test_step, pick_evenly
from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.errors import UserError
from litlab.types import PositiveInt
from project.callbacks._figures import make_axes, title_prediction

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ImagePlots(Callback):
    """Draw grids of images with their predictions at the end of each test.

    They go to the loggers as pictures and to the run folder: ``test_images.png``, images that are
    spread evenly over the test set, and ``mistakes.png``, the most confident mistakes (both of the
    first rank's share of it). Class names and normalisation are the data module's ``class_names``,
    ``mean`` and ``std`` (lists, one value a channel, for pixels from 0 to 1), where it has them.
    Without ``mean`` and ``std``, pixels from 0 to 1 are shown as they are, others from the least of
    all to the most.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is
    ``(images, labels)``, images (batch, channel, height, width) with 1 or 3 channels, labels
    (batch,).

    Args:
        images: Number of test images in each grid.

    Raises:
        UserError: Where the model's ``test_step`` returns no ``logits``, or the batches are not
            images.
    """

    files = ("test_images.png", "mistakes.png")

    def __init__(self, images: PositiveInt = 32) -> None:
        self.images = images

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._samples: list[tuple[Tensor, ...]] = []  # image, true class, probability of each class
        # Of mistakes: confidence, and as above; 0 and any for what is right
        self._worst: list[Tensor] = []
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
        logits = from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
        images, labels = batch
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise UserError(
                "ImagePlots: a test batch has no images (batch, channel, height, width); "
                "remove ImagePlots from trainer.callbacks"
            )
        batches = sum(trainer.num_test_batches)
        chosen = pick_evenly(self.images, len(self._samples), self._batches, batches, len(images))
        self._batches += 1
        probabilities = logits.float().softmax(dim=1)
        confidence, predicted = probabilities.max(dim=1)
        parts = [confidence * (predicted != labels), images, labels, probabilities]
        if self._worst:
            parts = [torch.cat(pair) for pair in zip(self._worst, parts, strict=True)]
        worst = parts[0].topk(min(self.images, len(parts[0]))).indices
        self._worst = [part[worst] for part in parts]
        if len(chosen):  # left on the device, which nothing waits for
            chosen = chosen.to(images.device, non_blocking=True)
            self._samples += zip(images[chosen], labels[chosen], probabilities[chosen], strict=True)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank
        if not self._samples or not trainer.is_global_zero:
            return
        names = class_names(trainer, self._samples[0][2].shape[0])
        data = getattr(trainer, "datamodule", None)
        confidence, *worst = self._worst
        grids = {"test_images": list(map(torch.stack, zip(*self._samples, strict=True)))}
        if confidence.any():
            grids["mistakes"] = [part[confidence > 0] for part in worst]
        for name, parts in grids.items():
            images, labels, probabilities = (part.cpu() for part in parts)
            pixels = denormalize(
                images.float(), getattr(data, "mean", None), getattr(data, "std", None)
            )
            publish_figure(trainer, folder, name, draw_images(pixels, labels, probabilities, names))


def draw_images(
    pixels: Tensor, labels: Tensor, probabilities: Tensor, names: list[str]
) -> "Figure":
    """Draw images in a grid, each with its prediction and probability; wrong ones in red, with the
    true class.

    Args:
        pixels: From 0 to 1, shape (image, channel, height, width).
        labels: Their classes, shape (image,).
        probabilities: Of each class, shape (image, class).
        names: Name of each class.
    """
    columns = min(8, len(pixels))
    rows = -(-len(pixels) // columns)
    figure, grid = make_axes(rows, columns, 1.3 * columns, 1.7 * rows)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, label, chances in zip(
        grid.flat, pixels, labels.tolist(), probabilities, strict=False
    ):
        axes.imshow(image.permute(1, 2, 0).numpy(), cmap="gray", vmin=0, vmax=1)
        title_prediction(axes, names, label, chances)
    return figure


def denormalize(
    images: Tensor, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> Tensor:
    """Bring images (image, channel, height, width) back to pixels from 0 to 1.

    Where it is not known how they were normalised, their least value becomes 0 and their greatest
    1, unless all are from 0 to 1.
    """
    if mean is not None and std is not None:
        shift, factor = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
        return (images * factor + shift).clamp(0, 1)
    low, high = images.min().clamp(max=0), images.max().clamp(min=1)
    return (images - low) / (high - low)
