"""Regression with any network that returns a number for each target."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from litlab.errors import UserError
from litlab.metrics.check import check_metrics
from litlab.metrics.regression_errors import RegressionErrors
from litlab.tasks.forecaster import LOSSES
from litlab.tasks.supervised import SupervisedModule


class Regressor(SupervisedModule):
    """Train any network to predict numbers.

    A batch is (inputs, target): inputs of shape (batch, ...), or a dict of tensors, which the network gets as keyword
    arguments; and the target, float of shape (batch, target) in the units of the file, or (batch,) for a single one.
    The network returns standardised predictions, (batch, target), which the model scales back. The loss is that of
    standardised values, so that no target outweighs the others by its units; a huber loss is linear from one standard
    deviation on.

    Logged: ``train/loss_step`` every ``trainer.log_every_n_steps``, as a mean over the last steps (at most 50). Once
    per epoch, exact over all samples and ranks, for train, val and test: ``loss``, and in the units of the file
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
        UserError: If model and data don't fit together, or a metric can't be used.
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
        count = len(target_names)
        for name, values in (("target_mean", target_mean), ("target_std", target_std)):
            if values is not None and (len(values) != count or (name == "target_std" and min(values) <= 0)):
                above = " above 0" if name == "target_std" else ""
                raise UserError(
                    f"model.{name}: {values} is not valid; give one number{above} for each of {target_names}"
                )
        self.network = network
        self.loss = LOSSES[loss]
        # Settings, not weights: a checkpoint has them among its settings, and no average touches them.
        self.register_buffer("mean", torch.tensor(target_mean or [0.0] * count), persistent=False)
        self.register_buffer("std", torch.tensor(target_std or [1.0] * count), persistent=False)
        check_metrics(metrics or {}, None, count)
        self.measure(MetricCollection({"errors": RegressionErrors(target_names)}), metrics, softmax=False)

    def outcome(self, inputs: Any, target: Tensor, stage: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, shape (), and predictions and target in the units of the file, (batch, target)."""
        outputs = self._outputs(inputs)
        target = target.reshape(len(target), -1).float()
        return self.loss(outputs, (target - self.mean) / self.std), self._scaled_back(outputs), target

    def test_step(self, batch: tuple[Any, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Add the batch to the test metrics; callbacks that plot get its predictions, in the units of the file."""
        loss, predicted = self._step(batch, self.test_metrics)
        return {"loss": loss, "predicted": predicted}

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return predictions in the units of the file, (batch, target), for a batch of inputs without a target."""
        return self._scaled_back(self._outputs(batch))

    def test_predictions(self, predicted: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Do what `test_step` does, for a batch that something else has predicted, such as an exported model.

        Args:
            predicted: What `predict_step` returns, shape (batch, target).
            target: Shape (batch, target) or (batch,).
        """
        target = target.reshape(len(target), -1).float()
        loss = self.loss((predicted - self.mean) / self.std, (target - self.mean) / self.std)
        self.test_metrics.add(loss, predicted, target)
        return {"loss": loss, "predicted": predicted}

    def expected_loss(self, batch: tuple[Any, Tensor]) -> float:
        """Return the loss of predicting the mean of the training rows everywhere, which is 0 when standardised."""
        target = batch[1].reshape(len(batch[1]), -1).float()
        target = (target - self.mean) / self.std
        return self.loss(torch.zeros_like(target), target).item()

    def _outputs(self, inputs: Any) -> Tensor:
        """Return what the network returns, standardised, float32 of shape (batch, target)."""
        outputs = self(inputs).float()
        if outputs.ndim != 2 or outputs.shape[1] != len(self.mean):
            raise UserError(
                f"model.network: it returns {(*outputs.shape,)}, not (batch, {len(self.mean)}); give it an output "
                f"for each of {self.hparams['target_names']}"
            )
        return outputs

    def _scaled_back(self, outputs: Tensor) -> Tensor:
        return outputs * self.std + self.mean
