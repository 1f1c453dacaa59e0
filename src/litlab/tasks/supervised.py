"""What Classifier and Regressor share: a network that gets inputs and is compared with a target."""

import warnings
from abc import abstractmethod
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from litlab.metrics.stage_metrics import StageMetrics
from litlab.tasks.base import ExperimentModule


class SupervisedModule(ExperimentModule):
    """Train a network on batches of (inputs, target), with the mean loss and metrics of each epoch.

    A subclass sets `network`, calls `measure` and defines `outcome`.
    """

    network: nn.Module

    def measure(
        self, metrics: MetricCollection, further: dict[str, Metric] | None = None, *, softmax: bool = True
    ) -> None:
        """Choose the metrics, of which each stage gets its own.

        Args:
            metrics: As of `StageMetrics`.
            further: As of `StageMetrics`.
            softmax: Whether `further` get class probabilities, instead of what `outcome` returns.
        """
        self.train_metrics = StageMetrics(metrics, "train", further=further, softmax=softmax)
        self.val_metrics = StageMetrics(metrics, "val", further=further, softmax=softmax)
        self.test_metrics = StageMetrics(metrics, "test", further=further, softmax=softmax)

    @abstractmethod
    def outcome(self, inputs: Any, target: Tensor, stage: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean loss of a batch, shape (), and what its metrics get: predictions and target.

        Args:
            inputs: As `forward` takes them.
            target: What is to be predicted, (batch, ...).
            stage: train, val or test.
        """

    def forward(self, inputs: Any) -> Tensor:
        """Return the network's output for inputs of shape (batch, ...), or for a dict of them."""
        inputs = self._cast(inputs)
        return self.network(**inputs) if isinstance(inputs, dict) else self.network(inputs)

    def training_loss(self, batch: tuple[Any, Tensor]) -> Tensor:
        """Return what `training_step` does, the mean loss of the batch, but leave metrics and loggers alone."""
        return self.outcome(*batch, "train")[0]

    def training_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> Tensor:
        """Return the mean loss of the batch, shape ()."""
        loss, _ = self._step(batch, self.train_metrics)
        self.log_recent_loss(self.train_metrics.loss.flush)
        return loss

    def validation_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> None:
        """Add the batch to the validation metrics."""
        self._step(batch, self.val_metrics)

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

    def _step(self, batch: tuple[Any, Tensor], metrics: StageMetrics) -> tuple[Tensor, Tensor]:
        """Add a batch to the metrics; return its loss and predictions."""
        loss, predicted, target = self.outcome(*batch, metrics.stage)
        metrics.add(loss, predicted, target)
        return loss, predicted

    def _cast(self, inputs: Any) -> Any:
        """Convert floating-point inputs to the type of the weights, for 16-true and 64-true precision."""
        if isinstance(inputs, dict):
            return {name: self._cast(value) for name, value in inputs.items()}
        return inputs.to(self.dtype) if inputs.is_floating_point() else inputs

    def _log_epoch(self, metrics: StageMetrics) -> None:
        with warnings.catch_warnings():
            if self.trainer.sanity_checking:  # on a few batches, in which classes may be missing
                warnings.simplefilter("ignore")
            values = metrics.compute(self.sum_over_ranks)
        # They are the same on all ranks already; sync_dist only tells Lightning so.
        self.log_dict(values, sync_dist=True)
        metrics.reset(self.device)
