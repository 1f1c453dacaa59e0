"""Grids of test images with their predictions."""

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import make_axes, publish_figure, run_folder
from litlab.callbacks.samples import (
    EvenPick,
    Outputs,
    from_test_step,
    read_predictions,
    refuse,
)
from litlab.types import PositiveInt

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ImagePlots(Callback):
    """Draw grids of images with their predictions at the end of each test.

    They go to the loggers as pictures and to the run folder: ``test_images.png`` has images that
    are spread evenly over the test set; ``mistakes.png`` has the most confident mistakes, or for
    numbers the largest errors (both from the first rank's share). Above each image are the
    predicted class, labels or numbers, and the true ones if they differ.

    Names and normalisation are the data module's ``class_names`` or ``label_names``, ``mean`` and
    ``std`` (lists, one value a channel, for pixels from 0 to 1), where it has them. Without
    ``mean`` and ``std``, pixels from 0 to 1 are shown as they are, others from the least of all to
    the most.

    The model's ``test_step`` and the batches are as `litlab.callbacks.samples.read_predictions`
    takes them; images are (batch, channel, height, width) with 1 or 3 channels.

    Args:
        images: Number of test images in each grid.

    Raises:
        UserError: Where the model's ``test_step`` returns no predictions, or the batches are not
            images.
    """

    files = ("test_images.png", "mistakes.png")

    def __init__(self, images: PositiveInt = 32) -> None:
        self.images = images

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pick = EvenPick(self.images, trainer)
        # Images and the rows of what is predicted, left on the device, which nothing waits for
        self._samples: list[list[Tensor]] = []
        self._worst: list[list[Tensor]] = []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        self._outputs, rows = read_predictions(self, trainer, pl_module, outputs, batch)
        images = batch[0]
        if not isinstance(images, Tensor) or images.ndim != 4 or images.shape[1] not in (1, 3):
            raise refuse(
                self,
                "a test batch has no images (batch, channel, height, width) of 1 or 3 channels; "
                "load such images",
            )
        chosen = self._pick(images)
        self._samples.append([images[chosen], rows[chosen]])
        images, rows = map(torch.cat, zip(*self._worst, [images, rows], strict=True))
        score = rows[:, 0] * rows[:, 1]  # 0 where it is right
        worst = score.topk(min(self.images, len(score))).indices
        self._worst = [[images[worst], rows[worst]]]

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank
        if not self._samples or not trainer.is_global_zero:
            return
        is_wrong = self._worst[0][1][:, 0] > 0
        self._worst = [[part[is_wrong] for part in self._worst[0]]]
        for name, parts in (("test_images", self._samples), ("mistakes", self._worst)):
            images, rows = (torch.cat(part).cpu() for part in zip(*parts, strict=True))
            if len(rows):
                figure = draw_images(denormalize(images, trainer), rows, self._outputs)
                publish_figure(trainer, folder, name, figure)


class MaskPlots(Callback):
    """Draw test images, their masks and the predicted masks: ``masks.png`` in the run folder, and
    in the loggers.

    The model's ``test_step`` returns a dict with ``predicted``, the class of each pixel, (batch,
    height, width), like the targets of a batch; images are as of `ImagePlots`.

    Args:
        images: Number of test images, spread evenly over the test.
    """

    files = ("masks.png",)

    def __init__(self, images: PositiveInt = 8) -> None:
        self.images = images

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pick = EvenPick(self.images, trainer)
        self._samples: list[list[Tensor]] = []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        predicted = from_test_step(self, pl_module, outputs, "predicted")
        chosen = self._pick(predicted)
        self._samples.append([part[chosen] for part in (*batch, predicted)])

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank
        if not self._samples or not trainer.is_global_zero:
            return
        images, masks, predicted = (
            torch.cat(part).cpu() for part in zip(*self._samples, strict=True)
        )
        pixels = denormalize(images, trainer).movedim(1, -1)
        figure, grid = make_axes(3, len(pixels), 1.3 * len(pixels), 4)
        rows = {"image": pixels, "mask": masks, "predicted": predicted}
        for line, (name, pictures) in zip(grid, rows.items(), strict=True):
            line[0].set_ylabel(name)
            for axes, picture in zip(line, pictures, strict=True):
                axes.set(xticks=[], yticks=[])
                if name == "image":
                    axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
                else:  # 20 colours, in turns
                    axes.imshow(
                        picture % 20, cmap="tab20", vmin=0, vmax=19, interpolation="nearest"
                    )
        publish_figure(trainer, folder, "masks", figure)


def draw_images(pixels: Tensor, rows: Tensor, outputs: Outputs) -> "Figure":
    """Draw images in a grid, each with what is predicted and what is true.

    Args:
        pixels: From 0 to 1, shape (image, channel, height, width).
        rows: Of each, as of `read_predictions`.
        outputs: What the rows mean.
    """
    columns = min(8, len(pixels))
    lines = -(-len(pixels) // columns)
    figure, grid = make_axes(lines, columns, 1.3 * columns, 1.7 * lines)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, row in zip(grid.flat, pixels, rows, strict=False):
        axes.imshow(image.permute(1, 2, 0), cmap="gray", vmin=0, vmax=1)
        outputs.set_title(axes, row)
    return figure


def denormalize(images: Tensor, trainer: Trainer) -> Tensor:
    """Bring images (image, channel, height, width) back to pixels from 0 to 1.

    Where the data has no ``mean`` and ``std``, their least value becomes 0 and their greatest 1,
    unless all are from 0 to 1.
    """
    data: Any = getattr(trainer, "datamodule", None)
    images = images.float()
    if hasattr(data, "mean") and hasattr(data, "std"):
        mean, std = torch.tensor([data.mean, data.std]).view(2, -1, 1, 1)
        return (images * std + mean).clamp(0, 1)
    low, high = images.min().clamp(max=0), images.max().clamp(min=1)
    return (images - low) / (high - low)
