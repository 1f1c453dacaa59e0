"""Classification with any network that returns logits."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from litlab.errors import UserError
from litlab.metrics.check import check_metrics, check_modes
from litlab.metrics.stage_metrics import StageMetrics
from litlab.nn.adapt import adapt_network
from litlab.tasks.base import ExperimentModule
from litlab.types import HalfOpenUnitInterval, check_bounds


class Classifier(ExperimentModule):
    """Train any network with cross-entropy.

    A batch is (inputs, labels): inputs of shape (batch, ...), such as images (batch, channel, height, width), or a dict
    of tensors, which the network gets as keyword arguments; and integer labels of shape (batch,). The network returns
    logits of shape (batch, classes).

    Logged: ``train/loss_step`` every ``trainer.log_every_n_steps``, as a mean over the last steps (at most 50). Once
    per epoch, exact over all samples and ranks: ``loss``, ``acc``, ``f1`` (macro) and `metrics`, for train, val and
    test.

    Args:
        network: The network, for example torchvision.models.resnet18 or a class of your own. With images, its first
            convolution is adapted to their channels and its last layer to the number of classes.
        num_classes: Number of classes. Taken from the data when left out.
        image_shape: Channels, height and width of an image. Taken from the data when left out; stays out where the
            inputs are not images.
        label_smoothing: Share of the target that is spread evenly over all classes (Szegedy et al. 2016,
            arXiv:1512.00567), from 0 to below 1.
        metrics: Further metrics of torchmetrics, or of your own, that return one number, by the name to log them by.
            They are updated with class probabilities, shape (batch, classes), and labels, shape (batch,). A
            `num_classes` that is null is taken from the data.
        **training: optimizer and schedule, as of `ExperimentModule`.

    Raises:
        UserError: If a value is out of range, the network can't take the images, or a metric can't be used.
    """

    data_facts = ("num_classes",)

    def __init__(
        self,
        network: nn.Module,
        *,
        num_classes: int | None = None,
        image_shape: tuple[int, int, int] | None = None,
        label_smoothing: HalfOpenUnitInterval = 0.0,
        metrics: dict[str, Metric] | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if num_classes is None or num_classes < 2:
            raise UserError(f"model.num_classes: {num_classes} is not valid; use data with 2 classes or more")
        check_bounds(Classifier, locals(), "model")
        self.network = network if image_shape is None else adapt_network(network, image_shape, num_classes)
        self.label_smoothing = label_smoothing
        check_metrics(metrics or {}, num_classes)
        counts = MetricCollection(
            {  # cross-entropy has already refused labels out of range
                "acc": MulticlassAccuracy(num_classes, average="micro", validate_args=False),
                "f1": MulticlassF1Score(num_classes, average="macro", validate_args=False),
            }
        )
        self.train_metrics = StageMetrics(counts, "train", further=metrics)
        self.val_metrics = StageMetrics(counts, "val", further=metrics)
        self.test_metrics = StageMetrics(counts, "test", further=metrics)

    @property
    def backbone(self) -> nn.ModuleList:
        """Return the network without its last linear layer or convolution, for Lightning's ``BackboneFinetuning``."""
        layers: list[nn.Module] = [part for part in self.network.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
        return nn.ModuleList(_without(self.network, layers[-1]) if layers else self.network.children())

    def forward(self, inputs: Any) -> Tensor:
        """Return logits of shape (batch, classes)."""
        return self.network(**inputs) if isinstance(inputs, dict) else self.network(inputs)

    def training_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> Tensor:
        """Return the mean loss of the batch, shape ()."""
        loss, _ = self._step(batch, self.train_metrics)
        self.log_recent_loss(self.train_metrics.loss.flush)
        return loss

    def validation_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> None:
        """Add the batch to the validation metrics."""
        self._step(batch, self.val_metrics)

    def test_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Add the batch to the test metrics; callbacks that plot get its logits."""
        loss, logits = self._step(batch, self.test_metrics)
        return {"loss": loss, "logits": logits}

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return class probabilities, shape (batch, classes), for a batch of inputs without labels."""
        return self(self._cast(batch)).float().softmax(dim=1)

    def on_fit_start(self) -> None:
        """Compare model and data, and what is monitored with what is better."""
        super().on_fit_start()
        check_modes(self.trainer, {**self.train_metrics.by_name, **self.val_metrics.by_name})

    def on_train_epoch_start(self) -> None:
        """Reset the metrics."""
        self.train_metrics.reset(self.device)

    def on_train_epoch_end(self) -> None:
        """Log the means of the epoch."""
        self._log_epoch(self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        """Log the means of the epoch."""
        self._log_epoch(self.val_metrics)

    def on_test_epoch_end(self) -> None:
        """Log the means over the test split."""
        self._log_epoch(self.test_metrics)

    def epoch_sums(self) -> list[Tensor]:
        """Return the sums of loss and metrics."""
        return self.train_metrics.sums()

    def load_epoch_sums(self, parts: list[list[Tensor]]) -> None:
        """Continue from these sums."""
        self.train_metrics.reset(self.device)
        for part in parts:
            self.train_metrics.add_sums(part)

    def expected_loss(self, batch: tuple[Any, Tensor]) -> float:
        """Return the loss of equal probabilities for all classes: ln(classes), with or without label smoothing.

        Raises:
            UserError: If a label of the batch is not a class.
        """
        classes, low, high = self.hparams["num_classes"], int(batch[1].min()), int(batch[1].max())
        if low < 0 or high >= classes:
            raise UserError(
                f"model.num_classes: {classes} does not fit a training batch with labels from {low} to {high}; "
                f"labels must be from 0 to {classes - 1}"
            )
        return math.log(classes)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Let a pre-trained network be rebuilt without a download: the checkpoint holds its weights."""
        hparams = checkpoint.get("hyper_parameters", {})
        network = hparams.get("network")
        if isinstance(network, dict) and network.get("init_args", {}).get("weights") is not None:
            bare = {**network, "init_args": {**network["init_args"], "weights": None}}
            checkpoint["hyper_parameters"] = {**hparams, "network": bare}

    def _cast(self, inputs: Any) -> Any:
        """Convert floating-point inputs to the type of the weights, for 16-true and 64-true precision."""
        if isinstance(inputs, dict):
            return {name: self._cast(value) for name, value in inputs.items()}
        return inputs.to(self.dtype) if inputs.is_floating_point() else inputs

    def _step(self, batch: tuple[Any, Tensor], metrics: StageMetrics) -> tuple[Tensor, Tensor]:
        inputs, labels = batch
        logits = self(self._cast(inputs))
        # Validation and test report the plain cross-entropy, so that runs with other smoothing can be compared.
        smoothing = self.label_smoothing if metrics.stage == "train" else 0.0
        loss = F.cross_entropy(logits, labels, label_smoothing=smoothing)
        metrics.add(loss, logits, labels)
        return loss, logits

    def _log_epoch(self, metrics: StageMetrics) -> None:
        with warnings.catch_warnings():
            if self.trainer.sanity_checking:  # on a few batches, in which classes may be missing
                warnings.simplefilter("ignore")
            values = metrics.compute(self.sum_over_ranks)
        # They are the same on all ranks already; sync_dist only tells Lightning so.
        self.log_dict(values, sync_dist=True)
        metrics.reset(self.device)


def _without(module: nn.Module, head: nn.Module) -> Iterator[nn.Module]:
    """Yield the largest parts of a module that do not contain the head."""
    for child in module.children():
        if not any(part is head for part in child.modules()):
            yield child
        elif child is not head:
            yield from _without(child, head)
