"""What is said at the end of a test: a classifier's confusions, and the model beside baselines."""

import json
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_confusion_matrix,
)

from litlab.callbacks.reporting import print_frame, publish_figure, publish_table, run_folder
from litlab.callbacks.samples import gather_batches, read_predictions, refuse
from litlab.util.files import write_output
from litlab.util.metrics import metric_direction

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

MOST_CLASSES = 20  # whose numbers are in the picture
BINS = 15  # of the confidence


class ConfusionMatrix(Callback):
    """Draw a confusion matrix and the calibration, and tabulate the classes, at the end of each
    test.

    To the loggers and the run folder: ``confusion_matrix.png``; ``calibration.png``, accuracy by
    confidence with the expected calibration error (Guo et al. 2017, arXiv:1706.04599); and
    ``classes.csv``, which the console gets, too: precision, recall and F1. They count every test
    sample, over all ranks. Class names are the data module's ``class_names``, if it has them.

    The model's ``test_step`` returns a dict with ``logits`` (batch, classes); a batch is
    ``(inputs, labels)``, labels (batch,).

    Raises:
        UserError: If the model's ``test_step`` returns no ``logits``.
    """

    files = ("confusion_matrix.png", "calibration.png", "classes.csv")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Rows of each batch. Counted at the end, as counting waits for a GPU
        self._seen: list[Tensor] = []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        outputs, rows = read_predictions(self, trainer, pl_module, outputs, batch)
        if outputs.task != "classification":
            raise refuse(
                self, f"it needs a classifier, and the model's task is {outputs.task}; use one"
            )
        self._names = outputs.names
        self._seen.append(rows)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank, like what is gathered
        rows = gather_batches(trainer, self._seen)
        if not self._seen:
            return
        _, confidence, labels, predicted = rows.T.contiguous()
        names = self._names
        self.counts = multiclass_confusion_matrix(predicted.long(), labels.long(), len(names))
        if not trainer.is_global_zero:
            return
        publish_figure(
            trainer, folder, "confusion_matrix", draw_confusion_matrix(self.counts, names)
        )
        is_right = (predicted == labels).long()
        publish_figure(trainer, folder, "calibration", draw_calibration(confidence, is_right))
        table = tabulate_classes(self.counts, names)
        publish_table(trainer, folder, "classes", table)
        print_frame("Test: each class", table)


class Baselines(Callback):
    """Show the model's test metrics beside those of methods that need little training or none.

    After a test of the whole test split the data module's ``baselines()``, if it has them, is
    called on the first rank; it returns the metrics of each on the test split:
    ``{"seasonal naive": {"test/mse": 0.6, ...}, ...}``. The table, with the model in its first row,
    goes to the console and the loggers, and to the run folder as ``baselines.json``.
    """

    files = ("baselines.json",)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        data: Any = getattr(trainer, "datamodule", None)
        limit: Any = trainer.limit_test_batches  # pyright: ignore[reportAttributeAccessIssue]
        is_whole = isinstance(limit, float) and limit == 1.0  # 1 is one batch
        if not is_whole or not hasattr(data, "baselines"):
            return
        folder = run_folder(trainer)  # on every rank, like the barrier
        if trainer.is_global_zero:
            from pandas import DataFrame

            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            baselines: dict[str, Any] = data.baselines()
            results = {type(pl_module).__name__: metrics, **baselines}
            table = DataFrame.from_dict(results, orient="index").rename_axis("model").reset_index()
            print_frame("Test: the model beside its baselines", table)
            publish_table(trainer, None, "baselines", table)
            if folder is not None:
                write_output(folder / "baselines.json", json.dumps(results, indent=2) + "\n")
            if baselines:
                warn_of_guess(metrics, *next(iter(baselines.items())), pl_module)
        trainer.strategy.barrier("baselines")


def warn_of_guess(
    metrics: dict[str, float], name: str, guess: dict[str, float], model: LightningModule
) -> None:
    """Say that a model is no better than a guess in any metric whose direction is known.

    Args:
        metrics: Test metrics of the model.
        name: What the guess is called, the first baseline.
        guess: Its test metrics.
        model: The model.
    """
    gains = []
    for key in guess.keys() & metrics.keys():
        direction = metric_direction(key, model)
        if direction is not None:
            gain = metrics[key] - guess[key]
            gains.append(gain if direction == "max" else -gain)
    if gains and max(gains) <= 0:
        rank_zero_info(f"warning: the model is no better than the baseline {name!r} in any metric")


def tabulate_classes(counts: Tensor, names: list[str]) -> "DataFrame":
    """Return a table of the classes: test samples, precision, recall and F1.

    Args:
        counts: Samples by (true class, predicted class), int64 of shape (classes, classes).
        names: Name of each class.
    """
    from pandas import DataFrame

    correct, true, predicted = counts.diagonal(), counts.sum(dim=1), counts.sum(dim=0)
    # NaN: none was predicted
    rates = [correct / predicted, correct / true, 2 * correct / (true + predicted)]
    table = DataFrame({"class": names, "test samples": true.numpy()})
    table[["precision", "recall", "F1"]] = torch.stack(rates, dim=1).numpy()
    return table


def draw_confusion_matrix(counts: Tensor, names: list[str]) -> "Figure":
    """Draw the shares of each true class that were predicted as each class, with numbers for up to
    20 classes.

    Args:
        counts: Samples by (true class, predicted class), shape (classes, classes).
        names: Name of each class.
    """
    from matplotlib.figure import Figure
    from torchmetrics.utilities.plot import plot_confusion_matrix

    side = min(10, 4 + len(counts) / 3)  # inches: names of few classes are then read on a page
    figure = Figure(figsize=(side, side), layout="constrained")
    shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
    has_numbers = len(counts) <= MOST_CLASSES
    plot_confusion_matrix(
        shares, figure.add_subplot(), add_text=has_numbers, labels=names, cmap="Blues"
    )
    return figure


def draw_calibration(confidence: Tensor, is_right: Tensor) -> "Figure":
    """Draw accuracy by confidence.

    Args:
        confidence: Of each sample, float of shape (samples,).
        is_right: Whether each was predicted rightly, 0 or 1, int64 of shape (samples,).
    """
    from matplotlib.figure import Figure

    # Of several classes, too, the error is that of two: right or wrong
    error = binary_calibration_error(confidence, is_right, BINS)
    accuracy = is_right.float()
    places = (confidence * BINS).ceil().long()
    samples = places.bincount()
    sums = torch.stack([places.bincount(values) for values in (confidence, accuracy)])
    title = (
        f"calibration error {error:.3f}, mean confidence {confidence.mean():.1%}, "
        f"accuracy {accuracy.mean():.1%}"
    )
    figure = Figure(layout="constrained")
    axes = figure.add_subplot(xlabel="confidence", ylabel="accuracy", title=title)
    axes.plot([0, 1], [0, 1], "--", color="gray")
    axes.plot(*(sums / samples)[:, samples > 0], "o-")
    return figure
