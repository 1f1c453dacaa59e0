"""Confusion matrix and sample predictions of an image classifier."""

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from project.callbacks._folder import run_folder
from project.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ImagePlots(Callback):
    """Draw a confusion matrix and a grid of images with their predictions at the end of each test.

    Both go to TensorBoard as images and to the run folder as ``confusion_matrix.png`` and ``test_images.png``. The
    matrix counts every test sample, over all ranks; the images are spread evenly over the test set. Class names and
    normalisation are the data module's ``class_names``, ``mean`` and ``std`` (lists, one value a channel, for pixels
    from 0 to 1), where it has them.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is ``(images, labels)``, images
    (batch, channel, height, width) with 1 or 3 channels, labels (batch,).

    Args:
        images: Number of test images in the grid.

    Raises:
        UserError: Where the model's ``test_step`` returns no ``logits``.
    """

    def __init__(self, images: int = 32) -> None:
        self.images = images
        self.counts: Tensor | None = None  # (true class, predicted class), int64
        self._samples: list[tuple[Tensor, int, int, float]] = []  # image, true class, predicted class, its probability
        self._batches = 0

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the test before."""
        self.counts = None
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
        """Count predictions on the device; keep a few images."""
        if not isinstance(outputs, dict) or "logits" not in outputs:
            raise UserError(
                f"ImagePlots: {type(pl_module).__name__}.test_step must return a dict with 'logits' (batch, classes); "
                "return it, or take ImagePlots out of trainer.callbacks"
            )
        images, labels = batch
        logits = outputs["logits"].detach()
        classes = logits.shape[1]
        predicted = logits.argmax(dim=1)
        counts = torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)
        self.counts = counts if self.counts is None else self.counts + counts

        if trainer.is_global_zero:
            batches = sum(trainer.num_test_batches)
            room = self.images - len(self._samples)
            due = self.images if batches == float("inf") else round((self._batches + 1) * self.images / batches)
            wanted = min(due - len(self._samples), room, len(images))
            if wanted > 0:
                chosen = torch.linspace(0, len(images) - 1, wanted).round().long().to(images.device)
                probability = logits[chosen].float().softmax(dim=1).amax(dim=1)
                self._samples += zip(
                    images[chosen].float().cpu(),
                    labels[chosen].tolist(),
                    predicted[chosen].tolist(),
                    probability.tolist(),
                    strict=True,
                )
        self._batches += 1

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sum over ranks, draw, log and save."""
        folder = run_folder(trainer)  # on every rank, like the sum
        if self.counts is None:
            return
        counts = trainer.strategy.reduce(self.counts, reduce_op="sum")
        assert isinstance(counts, Tensor)
        self.counts = counts
        if not trainer.is_global_zero:
            return
        data = getattr(trainer, "datamodule", None)
        names = getattr(data, "class_names", None) or [str(number) for number in range(len(counts))]
        figures = {"confusion_matrix": draw_confusion_matrix(counts.cpu(), names)}
        if self._samples:
            mean, std = getattr(data, "mean", None), getattr(data, "std", None)
            figures["test_images"] = draw_images(self._samples, names, mean, std)
        for name, figure in figures.items():
            if folder is not None:
                figure.savefig(folder / f"{name}.png")
            for logger in trainer.loggers:
                if isinstance(logger, TensorBoardLogger):
                    # As pixels: add_figure goes through pyplot and its global state.
                    pixels = _pixels(figure)
                    logger.experiment.add_image(f"test/{name}", pixels, trainer.global_step, dataformats="HWC")


def draw_confusion_matrix(counts: Tensor, names: list[str]) -> "Figure":
    """Draw a confusion matrix: colours are shares of the true class, numbers (up to 20 classes) are counts.

    Above 20 classes the colours follow the square root of the share: single confusions stay visible without numbers.

    Args:
        counts: Samples by (true class, predicted class), shape (classes, classes).
        names: Name of each class.
    """
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    classes = len(counts)
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    inches = min(max(5.0, 0.45 * classes if classes <= 20 else 0.13 * classes), 16.0)
    figure = Figure(figsize=(inches + 1.5, inches), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    norm = PowerNorm(1.0 if classes <= 20 else 0.5, vmin=0.0, vmax=1.0)
    image = axes.imshow(shares.numpy(), cmap="Blues", norm=norm)
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true class")
    every = -(-classes // 120)  # more labels than that cannot be told apart
    ticks = list(range(0, classes, every))
    size = 9 if classes <= 20 else 6
    axes.set_xticks(ticks, [names[tick] for tick in ticks], rotation=90, fontsize=size)
    axes.set_yticks(ticks, [names[tick] for tick in ticks], fontsize=size)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    correct, total = int(counts.diagonal().sum()), int(counts.sum())
    axes.set_title(f"{correct:,} of {total:,} correct ({correct / max(total, 1):.1%})")
    if classes <= 20:
        for row in range(classes):
            for column in range(classes):
                if count := int(counts[row, column]):
                    colour = "white" if shares[row, column] > 0.5 else "black"
                    axes.text(column, row, str(count), ha="center", va="center", fontsize=7, color=colour)
    return figure


def draw_images(
    samples: list[tuple[Tensor, int, int, float]],
    names: list[str],
    mean: list[float] | None,
    std: list[float] | None,
) -> "Figure":
    """Draw images in a grid, each with its prediction and probability; wrong ones in red, with the true class.

    Args:
        samples: Image (channel, height, width), true class, predicted class and its probability, for each image.
        names: Name of each class.
        mean: Mean of each channel that normalisation took away; ``None`` stretches each image from black to white.
        std: Standard deviation of each channel that normalisation divided by.
    """
    from matplotlib.figure import Figure

    columns = min(8, len(samples))
    rows = -(-len(samples) // columns)
    figure = Figure(figsize=(1.5 * columns, 1.9 * rows), dpi=120, layout="constrained")
    for number, (image, label, predicted, probability) in enumerate(samples):
        axes = figure.add_subplot(rows, columns, number + 1)
        pixels = _viewable(image, mean, std).permute(1, 2, 0).numpy()
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


def _viewable(image: Tensor, mean: list[float] | None, std: list[float] | None) -> Tensor:
    if mean is not None and std is not None:
        image = image * torch.tensor(std).reshape(-1, 1, 1) + torch.tensor(mean).reshape(-1, 1, 1)
    else:
        low, high = image.min(), image.max()
        image = (image - low) / (high - low).clamp(min=1e-6)
    return image.clamp(0.0, 1.0)


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:13]}…"


def _pixels(figure: "Figure") -> Any:
    """Return a figure as an array (height, width, 3) of bytes."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3]
