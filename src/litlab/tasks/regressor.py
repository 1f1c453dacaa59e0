"""Regression with any network that returns a number for each target."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from litlab.errors import UserError
from litlab.metrics.regression_errors import RegressionErrors
from litlab.metrics.stage_metrics import StageMetrics
from litlab.tasks.base import LOSSES, ExperimentModule


class Regressor(ExperimentModule):
    """Train any network to predict numbers.

    A batch is (inputs, target): inputs of shape (batch, ...), or a dict of tensors, which the network gets as keyword
    arguments; and the target, float of shape (batch, target) in the units of the file, or (batch,) for a single one.
    The network returns standardised predictions, (batch, target), which the model scales back. The loss is that of
    standardised values, so that no target outweighs the others by its units; a huber loss is linear from one standard
    deviation on.

    For a loss of your own extend `training_loss`.

    Logged: ``train/loss_step`` every ``trainer.log_every_n_steps``, as a mean over the steps since the last.
    Once per epoch, exact over all samples and ranks, for train, val and test: ``loss``, and in the units of the file
    ``mse``, ``mae`` and ``r2``, with several targets one of each, such as ``mse_price``; and `metrics`.

    Args:
        network: The network, for example one of your own.
        target_names: Names of the targets. Taken from the data when left out.
        target_mean: Mean of each target. Taken from the data when left out; 0 where the data has none.
        target_std: Standard deviation of each target. Taken from the data when left out; 1 where the data has none.
        loss: The loss of standardised values.
        metrics: Further metrics of torchmetrics, or of your own, that return one number, by the name to log them by.
            They are updated with predictions and targets, both (batch, target) in the units of the file.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If the data names no targets, or the network has another number of outputs.
    """

    data_facts = ("target_names",)
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        target_names: list[str] | None = None,
        target_mean: list[float] | None = None,
        target_std: list[float] | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        metrics: dict[str, Metric] | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if not target_names:
            raise UserError("model.target_names: it is not set, and the data does not provide it; name the targets")
        self.network = network
        self.loss = LOSSES[loss]
        # Settings, not weights: a checkpoint has them among its settings, and no average touches them.
        self.register_buffer("mean", torch.tensor(target_mean or [0.0] * len(target_names)), persistent=False)
        self.register_buffer("std", torch.tensor(target_std or [1.0] * len(target_names)), persistent=False)

        errors: dict[str, Metric] = {"errors": RegressionErrors(target_names)}
        self.train_metrics = StageMetrics("train", errors, metrics)
        self.val_metrics = StageMetrics("val", errors, metrics)
        self.test_metrics = StageMetrics("test", errors, metrics)

    def training_loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean training loss, shape (); extend it for a loss of your own.

        Args:
            outputs: What the network returns, standardised, (batch, target).
            target: What it should, standardised, (batch, target).
        """
        return self.loss(outputs, target)

    def batch_loss(self, batch: tuple[Any, Tensor]) -> Tensor:
        """Return what `training_step` does, the mean loss of the batch, but leave metrics and loggers alone."""
        inputs, target = batch
        return self.training_loss(self._outputs(inputs), self._standardise(target))

    def training_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        outputs = self._outputs(inputs)
        loss = self.training_loss(outputs, self._standardise(target))
        self.train_metrics.add(loss, self._scale_back(outputs), _as_rows(target))
        self.log_recent_loss(self.train_metrics.loss)
        return loss

    def validation_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> None:
        inputs, target = batch
        self._add_batch(self.val_metrics, self._outputs(inputs), target)

    def test_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Add the batch to the test metrics; callbacks that plot get its predictions, in the units of the file."""
        inputs, target = batch
        return self._add_batch(self.test_metrics, self._outputs(inputs), target)

    def test_predictions(self, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Do what `test_step` does, for a batch that something else has predicted, such as an exported model.

        Args:
            predicted: What `predict_step` returns, shape (batch, target).
            target: Shape (batch, target) or (batch,).
        """
        return self._add_batch(self.test_metrics, self._standardise(predicted), target)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return predictions in the units of the file, (batch, target), for a batch of inputs without a target."""
        return self._scale_back(self._outputs(batch))

    def expected_loss(self, batch: tuple[Any, Tensor]) -> float:
        """Return the loss of predicting the mean of the training rows everywhere, which is 0 when standardised."""
        target = self._standardise(batch[1])
        return self.loss(torch.zeros_like(target), target).item()

    def _outputs(self, inputs: Any) -> Tensor:
        """Return what the network returns, standardised, of shape (batch, target)."""
        outputs = self(inputs).float()
        if outputs.ndim != 2 or outputs.shape[1] != len(self.mean):
            raise UserError(
                f"model.network: it returns {(*outputs.shape,)}, not (batch, {len(self.mean)}); give it an output "
                f"for each of {self.hparams['target_names']}"
            )
        return outputs

    def _add_batch(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        loss, predicted = self.loss(outputs, self._standardise(target)), self._scale_back(outputs)
        metrics.add(loss, predicted, _as_rows(target))
        return {"loss": loss, "predicted": predicted}

    def _standardise(self, target: Tensor) -> Tensor:
        return (_as_rows(target) - self.mean) / self.std

    def _scale_back(self, outputs: Tensor) -> Tensor:
        return outputs * self.std + self.mean


def _as_rows(target: Tensor) -> Tensor:
    """Return a target of shape (batch, target) or (batch,) as float32 of shape (batch, target)."""
    return target.reshape(len(target), -1).float()
