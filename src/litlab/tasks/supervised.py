"""Steps and metrics of tasks whose samples have a target."""

from abc import abstractmethod
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from litlab.metrics.stage_metrics import StageMetrics
from litlab.tasks.base import ExperimentModule

LOSSES = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}  # of numbers


class Supervised(ExperimentModule):
    """A task whose samples have a target.

    A subclass says what its network makes of a batch in training and in evaluation, and has `StageMetrics` for each
    stage. These are logged once per epoch; the loss of a training step as ``train/loss_step``, every
    ``trainer.log_every_n_steps``.
    """

    train_metrics: StageMetrics
    val_metrics: StageMetrics
    test_metrics: StageMetrics
    members = 1  # networks whose losses add up to that of a training step

    @abstractmethod
    def training_outputs(self, batch: Any) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the loss of a training batch, shape (), and outputs (or None) and target as its metrics take them."""

    def evaluation_outputs(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return what the network returns for a batch of evaluation, and the target."""
        inputs, target = batch
        return self(inputs), target

    @abstractmethod
    def evaluate(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Add a batch, as `evaluation_outputs` returns it, to metrics, and return what callbacks that plot get."""

    def batch_loss(self, batch: Any) -> Tensor:
        """Return what `training_step` does, the mean loss of the batch, but leave metrics and loggers alone."""
        return self.training_outputs(batch)[0]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, outputs, target = self.training_outputs(batch)
        self.train_metrics.add(loss / self.members, outputs, target)

        every = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if every and self.trainer.fit_loop.epoch_loop.batch_progress.total.ready % every == 0:
            # To the loggers directly: one `self.log` in an epoch makes all of its steps slower, by 25 µs.
            for logger in self.loggers:
                logger.log_metrics({"train/loss_step": loss.item() / self.members}, step=self.global_step)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluate(self.val_metrics, *self.evaluation_outputs(batch))

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        return self.evaluate(self.test_metrics, *self.evaluation_outputs(batch))

    def on_train_epoch_start(self) -> None:
        self.train_metrics.reset()

    def on_train_epoch_end(self) -> None:
        self.log_epoch(self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        self.log_epoch(self.val_metrics)

    def on_test_epoch_end(self) -> None:
        self.log_epoch(self.test_metrics)

    def log_epoch(self, metrics: StageMetrics) -> None:
        """Log the means of a stage at the end of its epoch, and start anew."""
        # They are the same on all ranks already; sync_dist only tells Lightning so.
        self.log_dict(metrics.compute(), sync_dist=True)
        metrics.reset()
