"""What is said at the end of a test: a classifier's confusions, the model beside baselines, and
samples to look at.
"""

import json
import math
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_confusion_matrix,
)

from litlab.callbacks.reporting import print_table, publish_figure, publish_table, run_folder
from litlab.errors import UserError
from litlab.util.files import write_output
from litlab.util.metrics import metric_direction
from litlab.util.ranks import gather_rows

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
        # Of each batch: labels, predicted classes and how sure of them, (3, batch). Counted at the
        # end, as counting waits for a GPU
        self._seen: list[Tensor] = []
        self._classes = 0

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        logits = from_test_step(self, pl_module, outputs, "logits", "(batch, classes)")
        self._classes = logits.shape[1]
        confidence, predicted = logits.float().softmax(dim=1).max(dim=1)
        self._seen.append(torch.stack([batch[1], predicted, confidence], dim=1))

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank, like what is gathered
        own = torch.cat(self._seen) if self._seen else torch.empty(0, 3)
        labels, predicted, confidence = gather_rows(trainer, own).T.contiguous()
        if not self._classes:
            return
        self.counts = multiclass_confusion_matrix(predicted.long(), labels.long(), self._classes)
        if not trainer.is_global_zero:
            return
        names = class_names(trainer, self._classes)
        publish_figure(
            trainer, folder, "confusion_matrix", draw_confusion_matrix(self.counts, names)
        )
        is_right = (predicted == labels).long()
        publish_figure(trainer, folder, "calibration", draw_calibration(confidence, is_right))
        table = tabulate_classes(self.counts, names)
        publish_table(trainer, folder, "classes", table)
        print_table("Test: each class", table)


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
            print_table("Test: the model beside its baselines", table)
            publish_table(trainer, None, "baselines", table)
            if folder is not None:
                write_output(folder / "baselines.json", json.dumps(results, indent=2) + "\n")
            if baselines:
                warn_of_guess(metrics, *next(iter(baselines.items())), pl_module)
        trainer.strategy.barrier("baselines")


def warn_of_guess(
    metrics: dict[str, float], name: str, guess: dict[str, float], model: LightningModule
) -> None:
    """Say that a model is no better in any metric than what never looks at an input.

    Args:
        metrics: Test metrics of the model.
        name: What the guess is called.
        guess: Its test metrics.
        model: The model.
    """
    gains = []
    for key in guess.keys() & metrics.keys():
        sign = {"max": 1, "min": -1, None: 0}[metric_direction(key, model)]
        gains.append(sign * (metrics[key] - guess[key]))
    if gains and max(gains) <= 0:
        rank_zero_info(
            f"warning: the model is no better than the baseline {name!r}: it has learned nothing "
            "that holds for the test"
        )


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

    figure = Figure(figsize=(10, 10), layout="constrained")
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


# What a callback that looks at a test needs: facts of the data module, tensors of the test step,
# samples that are spread over all of it.


def data_with(callback: Callback, trainer: Trainer, *names: str) -> Any:
    """Return the data module, which has all that a callback needs of it.

    Args:
        callback: The callback that needs it.
        trainer: The trainer that has the data module.
        *names: The attributes that it needs.

    Raises:
        UserError: The data module lacks one.
    """
    data = getattr(trainer, "datamodule", None)
    for name in names:
        if not hasattr(data, name):
            raise UserError(
                f"{type(callback).__name__}: {type(data).__name__} has no '{name}'; add it to the "
                f"data module, or remove {type(callback).__name__} from trainer.callbacks"
            )
    return data


def class_names(trainer: Trainer, classes: int) -> list[str]:
    """Return the data module's ``class_names``, or the numbers of the classes where it has none."""
    names = getattr(getattr(trainer, "datamodule", None), "class_names", None)
    return list(names or map(str, range(classes)))


def from_test_step(
    callback: Callback, pl_module: LightningModule, outputs: Any, name: str, shape: str
) -> Tensor:
    """Return one of the tensors that ``test_step`` returned.

    Args:
        callback: The callback that needs it.
        pl_module: The model.
        outputs: What its ``test_step`` returned.
        name: Key of the tensor.
        shape: Its shape in words, for the error message.

    Raises:
        UserError: It is not there.
    """
    if not isinstance(outputs, dict) or name not in outputs:
        raise UserError(
            f"{type(callback).__name__}: {type(pl_module).__name__}.test_step must return a dict "
            f"with '{name}' {shape}; return it, or remove {type(callback).__name__} from "
            "trainer.callbacks"
        )
    return outputs[name].detach()


def pick_evenly(count: int, kept: int, batch: int, batches: int | float, size: int) -> Tensor:
    """Choose samples of a batch so that those of all batches are spread evenly over a test.

    Args:
        count: Number of samples to keep of the whole test.
        kept: Number of samples kept so far.
        batch: Number of this batch, from 0.
        batches: Number of batches of the test; infinity where it is unknown, which takes the first
            samples.
        size: Samples in this batch.

    Returns:
        Positions in the batch, int64 of shape (chosen,), often none; fewer in all than `count` if a
        batch has fewer samples than are due.
    """
    due = count if math.isinf(batches) else int((batch + 1) * count / batches + 0.5)
    chosen = max(0, min(due - kept, size))
    return torch.linspace(0, size - 1, chosen).round().long()
