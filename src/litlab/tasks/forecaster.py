"""Forecasting with any network that turns a window of the past into the future."""

from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.errors import UserError
from litlab.metrics import Conformal, ForecastMetrics, StageMetrics
from litlab.tasks.base import LOSSES, ExperimentModule
from litlab.types import OpenUnitInterval

Batch = dict[str, Tensor]

_FAR = 0.05  # a test warns where its intervals miss `coverage` by more than this


class Forecaster(ExperimentModule):
    """Train any forecasting network, for one value or for quantiles, and calibrate its intervals on
    validation.

    A batch is a dict: ``past`` (batch, past, channel) and ``future`` (batch, horizon, channel),
    both scaled, and where there are some ``covariates`` (batch, past + horizon, feature). The
    network takes past and covariates (or None) and returns (batch, horizon, channel, outputs): one
    output, or one for each quantile. In training it may return several such forecasts along a first
    dimension, which are then trained each by itself.

    Intervals are split-conformal (see ``Conformal``), calibrated at the end of each validation on
    all of its windows, and kept in the checkpoint.

    For a loss of your own extend `training_loss`.

    Logged, in scaled units: ``train/loss_step``, the loss of a step, every
    ``trainer.log_every_n_steps``. Once per epoch, exact over all windows and ranks: ``loss`` for
    train, val and test, ``mse`` and ``mae`` for val and test, and for test ``mase`` (mean absolute
    error over that of the seasonal naive forecast within the training rows, Hyndman & Koehler
    2006), ``coverage`` and ``interval_width``.

    Args:
        network: The network, for example one of your own.
        horizon: Rows to forecast. Taken from the data when left out.
        num_targets: Channels of the series. Taken from the data when left out.
        loss: The loss of a forecast of one value.
        quantiles: Quantiles to forecast, ascending and with 0.5, such as [0.05, 0.5, 0.95]: then
            the pinball loss (Koenker & Bassett 1978) takes the place of `loss`, the median is the
            forecast and the outermost quantiles are the interval before its calibration. Left out,
            the network forecasts one value.
        coverage: Share of the truth that the intervals are to cover.
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If the quantiles are not valid, or model and data don't fit together.
    """

    data_facts = ("context_length", "horizon", "num_targets", "num_covariates")

    def __init__(
        self,
        network: nn.Module,
        *,
        horizon: int | None = None,
        num_targets: int | None = None,
        loss: Literal["mse", "mae", "huber"] = "mse",
        quantiles: list[OpenUnitInterval] | None = None,
        coverage: OpenUnitInterval = 0.9,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if horizon is None or num_targets is None:
            raise UserError(
                "model: horizon and num_targets are not set, and the data does not provide them; "
                "set them or use SeriesData"
            )
        if quantiles is not None and quantiles != sorted({*quantiles, 0.5}):
            raise UserError(
                f"model.quantiles: {quantiles} is not valid; it must be ascending and contain 0.5"
            )
        self.network = network
        self.horizon, self.num_targets = horizon, num_targets
        self.point_loss, self.quantiles = LOSSES[loss], quantiles
        self.coverage, self.conformal = coverage, Conformal(coverage)
        # Added up at once: forecasts of many steps and channels would take much memory.
        self.set_metrics({"errors": ForecastMetrics(num_targets)}, flush_every=1)
        self.train_metrics = StageMetrics("train")  # the loss alone

    def forward(self, past: Tensor, covariates: Tensor | None = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a forecast (batch, horizon, channel, outputs) for a past (batch, past, channel).

        In training quantiles may cross; what is evaluated and served is in order (Chernozhukov et
        al. 2010).
        """
        # Without its first dimension, where training returns several forecasts
        outputs = super().forward(past, covariates)
        expected = (past.shape[0], self.horizon, self.num_targets, len(self.quantiles or [1]))
        if outputs.shape[-4:] != expected:
            raise UserError(
                f"model.network: it returns {(*outputs.shape,)}, not (batch, horizon, channel, "
                f"outputs) = {expected}; set its sizes to those of the data and model.quantiles"
            )
        return outputs.float() if self.training else outputs.float().sort(dim=-1).values

    def loss(self, outputs: Tensor, future: Tensor) -> Tensor:
        """Return the mean loss, shape (), of what the network returns, (batch, horizon, channel,
        outputs), and the truth, (batch, horizon, channel), in scaled units.
        """
        # The truth is the same for each of several forecasts
        if self.quantiles is None:
            return self.point_loss(outputs.squeeze(-1), future.expand(outputs.shape[:-1]))
        # Pinball loss: an error of the quantile 0.9 costs 0.9 where the truth is above it, and 0.1
        # where it is below
        error = future.unsqueeze(-1) - outputs
        quantiles = torch.tensor(self.quantiles).to(error.device, non_blocking=True)
        return torch.maximum(quantiles * error, (quantiles - 1) * error).mean()

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return forecast and ends of its interval, and the truth; errors of the training are not
        counted.
        """
        return None if self.training else self.calibrate(outputs), target

    def evaluation_outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return what the network returns, (batch, horizon, channel, outputs), and the truth
        without outputs.
        """
        return self(batch["past"], batch.get("covariates")), batch["future"].float()

    def evaluate(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Add outputs and the truth to metrics; return loss, forecast, lower and upper, in scaled
        units.
        """
        # From the outermost quantiles, or from a point forecast as an interval without width
        if metrics is self.val_metrics:
            self.conformal.update(outputs[..., 0], outputs[..., -1], target)
        shown = super().evaluate(metrics, outputs, target)
        # By names, as callbacks that plot ask for them
        names = "forecast", "lower", "upper"
        return shown | dict(zip(names, shown["predicted"].unbind(dim=-1), strict=True))

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return forecast, lower and upper end of its interval, in scaled units, (batch, horizon,
        channel, 3).
        """
        return self.calibrate(self(batch["past"], batch.get("covariates")))

    def calibrate(self, outputs: Tensor) -> Tensor:
        """Return forecast and ends of its interval, (batch, horizon, channel, 3), of what the
        network returns.
        """
        middle = 0 if self.quantiles is None else self.quantiles.index(0.5)
        # Quantiles are ascending, so the first and the last are the ends; NaN before a calibration
        ends = self.conformal.interval(outputs[..., 0], outputs[..., -1])
        return torch.stack([outputs[..., middle], *ends], dim=-1)

    def on_validation_epoch_start(self) -> None:
        self.conformal.radius = None  # no intervals while they are calibrated

    def on_validation_epoch_end(self) -> None:
        # Lightning's check of some validation batches before a fit has too few windows
        if not self.trainer.sanity_checking:
            self.conformal.radius = self.conformal.compute()
        self.conformal.reset()
        super().on_validation_epoch_end()

    def on_predict_start(self) -> None:
        """Compare model and data, and say so if there will be no intervals."""
        super().on_predict_start()
        if self.conformal.radius is None:
            rank_zero_info(
                "The forecasts have no intervals: no validation with enough windows has "
                "calibrated them."
            )

    def on_test_start(self) -> None:
        self.on_predict_start()
        # What MASE divides by is measured on the training rows, by the data
        data = getattr(self.trainer, "datamodule", None)
        self.test_metrics.metrics["errors"].naive_error = getattr(data, "naive_error", None)

    def on_test_epoch_end(self) -> None:
        """Log the metrics, and say so where intervals cover another share of the test than they
        should.
        """
        # Logging starts the metrics anew, so this is asked for before
        covered = float(self.test_metrics.compute().get("test/coverage", self.coverage))
        super().on_test_epoch_end()
        if abs(covered - self.coverage) > _FAR:
            rank_zero_info(
                f"warning: the intervals hold {covered:.1%} of the test's values, not "
                f"{self.coverage:.0%}: the test differs from the validation data that they were "
                "calibrated on"
            )

    def expected_loss(self, batch: Batch) -> float:
        """Return the loss of forecasting the mean of the training rows everywhere, which is 0 in
        scaled units.
        """
        future = batch["future"].float()
        guess = future.new_zeros(*future.shape, len(self.quantiles or [1]))
        return self.loss(guess, future).item()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the calibration: that of the weights that were validated, which with EMA are the
        average, as saved.
        """
        # By its coverage: a resumed run may have set another one
        checkpoint["conformal"] = {self.coverage: self.conformal.radius}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the calibration, unless it is for another coverage."""
        self.conformal.radius = checkpoint.get("conformal", {}).get(self.coverage)
