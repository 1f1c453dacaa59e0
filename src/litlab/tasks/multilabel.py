"""Classification into labels of which several may be true, with any network that returns logits."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import ClasswiseWrapper, Metric
from torchmetrics.classification import (
    MultilabelAveragePrecision,
    MultilabelF1Score,
    MultilabelPrecisionRecallCurve,
)

from litlab.errors import UserError
from litlab.metrics import StageMetrics
from litlab.nn.adapt import adapt_network
from litlab.tasks.base import ExperimentModule

THRESHOLDS = 101  # that are tried, from 0 to 1, so that no probability has to be kept


class MultilabelClassifier(ExperimentModule):
    """Train any network that returns logits, one for each label, of which several may be true.

    A batch is (inputs, labels): inputs of shape (batch, ...), or a dict of tensors, which the
    network gets as keyword arguments; and labels, float of shape (batch, label), 0 or 1. The loss
    is binary cross-entropy, the mean over labels.

    A label counts as true above a threshold of its own: the one with the best F1 on the validation
    split, chosen after each validation and kept in the checkpoint; one half without a validation.

    Logged once per epoch, exact over all samples and ranks, for train, val and test: ``loss``,
    ``f1`` (macro, at a threshold of one half; in the test at the thresholds), and
    ``average_precision`` (macro), ``f1_LABEL`` of each label, and `metrics`.

    Args:
        network: The network, for example one of your own. With images, its first convolution is
            adapted to their channels and its last layer to the number of labels.
        label_names: Names of the labels. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out;
            stays out where the inputs are not images.
        metrics: Further metrics of torchmetrics, or of your own, that return one number, by the
            name to log them by. They are updated with probabilities and labels, both (batch,
            label).
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If the data names no labels, or the network can't take the images.
    """

    task = "labels"
    data_facts = ("label_names", "image_shape")
    loss = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(
        self,
        network: nn.Module,
        *,
        label_names: list[str] | None = None,
        image_shape: tuple[int, int, int] | None = None,
        metrics: dict[str, Metric] | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if not label_names:
            raise UserError(
                "model.label_names: it is not set, and the data does not provide it; name the "
                "labels, or set data.task labels"
            )

        # The network, with an output for each label
        self.num_outputs = count = len(label_names)
        if image_shape is not None:
            network = adapt_network(network, image_shape, count)
        self.network = network

        # Thresholds belong to the weights that were validated, so they are neither state nor
        # buffer: an average of weights must not average them
        self.thresholds = [0.5] * count
        self.curve = MultilabelPrecisionRecallCurve(count, THRESHOLDS, validate_args=False)

        # Without torchmetrics' checks, which wait for the device
        options: Any = {"num_labels": count, "validate_args": False}
        by_label = MultilabelF1Score(average=None, **options)
        scores: dict[str, Any] = {
            "f1": MultilabelF1Score(**options),
            "average_precision": MultilabelAveragePrecision(thresholds=THRESHOLDS, **options),
            "f1_": ClasswiseWrapper(by_label, label_names, prefix="f1_"),  # logs one for each label
        }
        self.set_metrics(scores, metrics)

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and labels."""
        return outputs.sigmoid(), target.long()

    def evaluate(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Add logits and labels to metrics, and return loss and logits."""
        predicted, truth = self.convert(outputs, target)
        if metrics is self.val_metrics:
            self.curve.update(predicted, truth)
        # Torchmetrics counts a label as true from one half on. In training and validation that is
        # the threshold, as the thresholds of this epoch are not chosen yet
        if metrics is self.test_metrics:
            predicted = move_thresholds(predicted, self.thresholds)
        metrics.add(loss := self.loss(outputs, target), predicted, truth)
        return {"loss": loss, "logits": outputs}

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return for each label its probability, and 1 if that is above the threshold, else 0,
        (batch, label, 2).
        """
        predicted = self(batch).float().sigmoid()
        is_true = predicted > predicted.new_tensor(self.thresholds)
        return torch.stack([predicted, is_true], dim=-1)

    def on_validation_epoch_end(self) -> None:
        # Lightning's check of some validation batches before a fit is too small to choose by
        if not self.trainer.sanity_checking:
            self.thresholds = choose_thresholds(self.curve)
        self.curve.reset()
        super().on_validation_epoch_end()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["thresholds"] = self.thresholds

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.thresholds = checkpoint.get("thresholds", self.thresholds)


def choose_thresholds(curve: MultilabelPrecisionRecallCurve) -> list[float]:
    """Return the threshold with the best F1 of each label; the middle one of equal ones."""
    computed: Any = curve.compute()
    precision, recall, thresholds = computed
    f1 = (2 * precision * recall / (precision + recall)).nan_to_num(0.0)  # 0 / 0 where none is true
    # Shape (label, threshold); the curve ends with a point of recall 0 that has no threshold. The
    # middle of equally good ones is the least likely to be just at the edge
    best = f1[:, :-1] >= f1[:, :-1].amax(dim=1, keepdim=True) - 1e-9
    # `move_thresholds` divides by a threshold, and by one minus it
    thresholds = thresholds.clamp(0.01, 0.99).cpu()
    return [thresholds[row].median().item() for row in best.cpu()]


def move_thresholds(predicted: Tensor, thresholds: list[float]) -> Tensor:
    """Return probabilities, (batch, label), in their order, with each threshold at one half."""
    # Two straight lines: from 0 to the threshold onto 0 to 0.5, and from there to 1 onto 0.5 to 1
    bound = predicted.new_tensor(thresholds)
    return torch.where(
        predicted > bound,
        0.5 + 0.5 * (predicted - bound) / (1 - bound),
        0.5 * predicted / bound,
    )
