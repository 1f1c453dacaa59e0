"""Regression with any network that returns a number for each target."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from litlab.errors import UserError
from litlab.metrics import WIDEST, RegressionErrors
from litlab.nn.adapt import adapt_network
from litlab.tasks.base import LOSSES, ExperimentModule


class Regressor(ExperimentModule):
    """Train any network to predict numbers.

    A batch is (inputs, target): inputs of shape (batch, ...), or a dict of tensors, which the
    network gets as keyword arguments; and the target, float of shape (batch, target) in the units
    of the file, or (batch,) for a single one. The network returns standardised predictions, (batch,
    target), which the model scales back. The loss is that of standardised values, so that no target
    outweighs the others by its units; a huber loss is linear from one standard deviation on.

    For a loss of your own extend `training_loss`.

    Logged: ``train/loss_step``, the loss of a step, every ``trainer.log_every_n_steps``. Once per
    epoch, exact over all samples and ranks, for train, val and test: ``loss``, and in the units of
    the file ``mse``, ``mae`` and ``r2``, with several targets one of each, such as ``mse_price``;
    and `metrics`.

    Args:
        network: The network, for example one of your own. With images, its first convolution is
            adapted to their channels and its last layer to the targets.
        image_shape: Channels, height and width of an image. Taken from the data when left out;
            stays out where the inputs are not images.
        target_names: Names of the targets. Taken from the data when left out.
        target_mean: Mean of each target. Taken from the data when left out; 0 where the data has
            none.
        target_std: Standard deviation of each target. Taken from the data when left out; 1 where
            the data has none.
        loss: The loss of standardised values.
        metrics: Further metrics of torchmetrics, or of your own, that return one number, by the
            name to log them by. They are updated with predictions and targets, both (batch, target)
            in the units of the file.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If the data names no targets, or the network has another number of outputs.
    """

    data_facts = ("target_names", "image_shape")
    task = "regression"

    def __init__(
        self,
        network: nn.Module,
        *,
        image_shape: tuple[int, int, int] | None = None,
        target_names: list[str] | None = None,
        target_mean: list[float] | None = None,
        target_std: list[float] | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        metrics: dict[str, Metric] | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if not target_names:
            raise UserError(
                "model.target_names: it is not set, and the data does not provide it; "
                "name the targets"
            )
        # The network, with an output for each target
        self.num_outputs = count = len(target_names)
        if image_shape is not None:
            network = adapt_network(network, image_shape, count)
        self.network = network
        self.loss = LOSSES[loss]
        # Settings, not weights: no average touches them, and no precision rounds them
        self.mean = target_mean or [0.0] * count
        self.std = target_std or [1.0] * count
        self._moved: Tensor | None = None

        # Around the means, as R2 of numbers far from zero would lose its digits
        self.set_metrics({"errors": RegressionErrors(target_names, self.mean)}, metrics)

    def forward(self, inputs: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return standardised predictions, float of shape (batch, target)."""
        outputs = super().forward(inputs).float()
        # (batch,) and (batch, 1) would broadcast to (batch, batch) in the loss, without a word
        if outputs.shape[1:] != (len(self.mean),):
            names = ", ".join(self.hparams["target_names"])
            raise UserError(
                f"model.network: it returns {(*outputs.shape,)}; give it an output for "
                f"each of {names}"
            )
        return outputs

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return predictions and target in the units of the file, both (batch, target)."""
        return self.scale_back(outputs), _as_rows(target)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return predictions in the units of the file, (batch, target), for a batch of inputs
        without a target.
        """
        return self.scale_back(self(batch))

    def standardise(self, target: Tensor) -> Tensor:
        """Return a target, (batch, target) or (batch,), as its network should return it, float32
        (batch, target).
        """
        # The difference in float64: that of two large numbers
        mean, std = self._units
        return ((_as_rows(target) - mean) / std).float()

    def scale_back(self, outputs: Tensor) -> Tensor:
        """Return outputs of the network, (batch, target), in the units of the file, float64 where
        the device has it: float32 has no digits for small differences of large numbers.
        """
        mean, std = self._units
        return outputs.to(WIDEST) * std + mean

    @property
    def _units(self) -> Tensor:
        """Mean and standard deviation of the targets on this device, (2, target)."""
        # Copied once to a device: a copy in each step would wait for it
        if self._moved is None or self._moved.device != self.device:
            self._moved = torch.tensor([self.mean, self.std], dtype=WIDEST, device=self.device)
        return self._moved


def _as_rows(target: Tensor) -> Tensor:
    """Return a target of shape (batch, target) or (batch,) as one of shape (batch, target)."""
    # A DataModule of one's own may give (batch,), for a single number
    return target.reshape(len(target), -1).to(WIDEST)
