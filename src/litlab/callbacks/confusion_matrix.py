"""Confusion matrix of a classifier."""

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting.class_table import report_classes
from litlab.callbacks.reporting.figures import publish_figure
from litlab.callbacks.reporting.folders import run_folder
from litlab.callbacks.reporting.protocols import class_names
from litlab.callbacks.reporting.samples import from_test_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ConfusionMatrix(Callback):
    """Draw a confusion matrix at the end of each test of a classifier.

    It goes to the loggers as a picture and to the run folder as ``confusion_matrix.png``, and counts every test sample,
    over all ranks. If a class has more than 1.5 times as many samples as another, in training or in the test, a table
    of each class follows, on the console, in the loggers and as ``classes.csv``. Class names are the data module's
    ``class_names``, if it has them.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is ``(inputs, labels)``, labels
    (batch,).

    Raises:
        UserError: If the model's ``test_step`` returns no ``logits``.
    """

    def __init__(self) -> None:
        self.counts: Tensor | None = None  # (true class, predicted class), int64

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the previous test."""
        self.counts = None

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count predictions on the device."""
        logits = from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
        counts = _count(batch[1], logits.argmax(dim=1), logits.shape[1])
        self.counts = counts if self.counts is None else self.counts + counts

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Sum over ranks, draw, log and save."""
        folder = run_folder(trainer)  # on every rank, like the sum
        if self.counts is None:
            return
        counts = trainer.strategy.reduce(self.counts, reduce_op="sum")
        assert isinstance(counts, Tensor)
        self.counts = counts
        if trainer.is_global_zero:
            counts, names = counts.cpu(), class_names(trainer, len(counts))
            publish_figure(trainer, folder, "confusion_matrix", draw_confusion_matrix(counts, names))
            report_classes(trainer, folder, counts, names)


def _count(labels: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Return the samples by (true class, predicted class), int64 of shape (classes, classes).

    As a product of matrices, exact for up to 2**24 samples: torchmetrics counts with ``bincount``, which waits for a
    GPU.
    """
    every = torch.arange(classes, device=labels.device)
    true, chosen = ((kind[:, None] == every).float() for kind in (labels, predicted))
    return (true.T @ chosen).long()


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
    every = -(-classes // 120)  # more labels than that can't be read
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
