"""What all tasks share: settings in the checkpoint, optimizer and schedule, steps and metrics of
each stage.
"""

import json
import warnings
from typing import Any, ClassVar

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import OptimizerCallable
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer
from torchmetrics import Metric

from litlab.errors import UserError, building
from litlab.metrics import StageMetrics
from litlab.optim.param_groups import ParamGroups
from litlab.optim.schedule import Schedule, rates_of, scale_rates
from litlab.util.recipes import plain_recipe
from litlab.util.steps import epochs_of_run, steps_of_run

LOSSES = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}  # of numbers


class ExperimentModule(LightningModule):
    """A LightningModule that keeps its settings and builds its optimizer and its schedule from
    them.

    A batch is (inputs, target). A subclass sets `network` and `loss`, calls `set_metrics`, and says
    in `convert` what those take; or it has `training_outputs` and `evaluate` of its own. Metrics
    are logged once per epoch; the loss of a training step as ``train/loss_step``, every
    ``trainer.log_every_n_steps``.

    ``lr`` is the optimizer's learning rate. `LRFinder`, and Lightning's ``LearningRateFinder`` and
    ``Tuner``, set it to what they found; an optimizer that has several rates gets all of them in
    proportion.

    Args:
        optimizer: Any torch.optim class, without its parameters. Left out, AdamW with its defaults.
        schedule: Learning-rate schedule. Left out, the learning rate stays as it is.
        param_groups: Learning rates and weight decay that differ by the parameters' names.
    """

    network: Any
    loss: Any  # mean loss of what the network returns, and should
    task: ClassVar[str | None] = None  # what its data's target must be for; None: anything
    data_facts: tuple[str, ...] = ()  # settings that must be the same in model and data
    num_outputs: int | None = None  # of the network, for each sample
    output_name = "outputs"  # what `test_step` calls them
    members = 1  # networks whose losses add up to that of a training step
    train_metrics: StageMetrics
    val_metrics: StageMetrics
    test_metrics: StageMetrics

    def __init__(
        self,
        optimizer: OptimizerCallable | None = None,
        schedule: Schedule | None = None,
        param_groups: ParamGroups | None = None,
    ) -> None:
        super().__init__()
        # Called here, it finds the arguments of the whole chain of subclasses that called this one.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Attribute 'network' is an instance of")
            self.save_hyperparameters()
        # The command line hands over plain descriptions; what Python code passes as objects can't
        # go into a checkpoint that is loaded with weights_only=True.
        self.save_hyperparameters(
            ignore=[name for name, value in self.hparams.items() if not _is_plain(value)]
        )
        # Not as the command line hands them over: that can't be copied, which averages of the
        # weights and pruning do.
        self.optimizer = plain_recipe(optimizer) or torch.optim.AdamW
        self.schedule = plain_recipe(schedule)
        self.param_groups = param_groups

    def __setattr__(self, name: str, value: Any) -> None:
        # Lightning (2.6.6) notes the name of each hook that it calls, 44 times a step, and torch
        # looks each time whether that is a parameter, a buffer or a module, which takes 1.3 µs.
        if name in self.__dict__ and (value is None or isinstance(value, str)):
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def set_metrics(
        self, metrics: dict[str, Metric], further: dict[str, Metric] | None = None, **options: Any
    ) -> None:
        """Set the metrics of each stage; options as of `StageMetrics`."""
        # As modules, so that they move to the device, and checkpoints within an epoch have them
        for stage in ("train", "val", "test"):
            setattr(self, f"{stage}_metrics", StageMetrics(stage, metrics, further, **options))

    def forward(self, *inputs: Any) -> Tensor:
        """Return the network's output, in float32 or wider, for inputs of shape (batch, ...), or
        for a dict of them.
        """

        # To the type of the weights, for 16-true and 64-true precision
        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

        inputs = apply_to_collection(inputs, Tensor, cast)
        first = inputs[0]
        outputs = self.network(**first) if isinstance(first, dict) else self.network(*inputs)
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32))

    def configure_callbacks(self) -> list[Callback]:
        """Put `EpochMeans` before all callbacks of the Trainer; extend it to return some of your
        own.
        """
        # In place: Lightning would put what is returned behind the others
        callbacks: Any = self.trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        if not any(isinstance(callback, EpochMeans) for callback in callbacks):
            callbacks.insert(0, EpochMeans())
        return []

    def on_fit_start(self) -> None:
        """Compare model and data: a checkpoint or a setting may be for other data.

        Raises:
            UserError: If they differ in one of `data_facts`.
        """
        data = getattr(self.trainer, "datamodule", None)
        for name in self.data_facts:
            mine, theirs = getattr(self, name, self.hparams.get(name)), getattr(data, name, None)
            if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
                raise UserError(
                    f"model.{name}: {mine} differs from the data's {theirs}; leave it out, or set "
                    "the same in both"
                )

    on_validation_start = on_test_start = on_predict_start = on_fit_start

    @property
    def lr(self) -> float | None:
        """The optimizer's learning rate; None where it has none of that name."""
        return rates_of(self.optimizer).get("lr")

    @lr.setter
    def lr(self, value: float) -> None:
        self.optimizer = scale_rates(self.optimizer, value)

    def new_optimizer(self) -> Optimizer:
        """Return the optimizer of the parameters that are trained, without any state.

        Raises:
            UserError: If it does not take its settings, or a pattern of `param_groups` matches
                nothing.
        """
        with building("model.optimizer"):
            optimizer = self.optimizer(
                [parameter for parameter in self.parameters() if parameter.requires_grad]
            )
            # Muon has to know which weights are those of hidden layers
            if hasattr(optimizer, "divide"):
                optimizer.divide(self)  # pyright: ignore[reportAttributeAccessIssue]
            if self.param_groups is not None:
                self.param_groups.divide(optimizer, self)
        return optimizer

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the parameters that are trained, and the schedule over the length
        of the run.
        """
        optimizer = self.new_optimizer()
        if self.schedule is None:
            return optimizer
        length = steps_of_run if self.schedule.interval == "step" else epochs_of_run
        schedule = self.schedule.configure(optimizer, length(self.trainer), self)
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Step the schedule, every ``frequency`` optimizer steps of the run; Lightning would count
        by the epoch.
        """
        schedule = self.schedule
        every = schedule.frequency if schedule and schedule.interval == "step" else 1
        if self.global_step % every == 0:
            super().lr_scheduler_step(scheduler, metric)

    # ---- the steps

    def training_loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the mean training loss, shape (); extend it for a loss of your own.

        Args:
            outputs: What the network returns, such as logits, (batch, output).
            target: What it should, as of `standardise`.
        """
        return self.loss(outputs, target)

    def standardise(self, target: Tensor) -> Tensor:
        """Return a target as the loss takes it."""
        return target

    def convert(self, outputs: Tensor, target: Tensor) -> tuple[Any, Tensor]:
        """Return outputs of the network, or None, and a target as metrics take them."""
        return outputs, target

    def training_outputs(self, batch: Any) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the loss of a training batch, shape (), and outputs (or None) and target as its
        metrics take them.
        """
        outputs, target = self.evaluation_outputs(batch)
        loss = self.training_loss(outputs, self.standardise(target))
        return loss, *self.convert(outputs.detach(), target)

    def evaluation_outputs(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return what the network returns for a batch of evaluation, and the target."""
        inputs, target = batch
        return self(inputs), target

    def evaluate(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Add a batch, as `evaluation_outputs` returns it, to metrics, and return what callbacks
        that plot get. The loss is the plain one, so that runs with other settings can be compared.
        """
        loss = self.loss(outputs, self.standardise(target))
        predicted, truth = self.convert(outputs, target)
        metrics.add(loss, predicted, truth)
        return {"loss": loss, self.output_name: outputs, "predicted": predicted}

    def expected_loss(self, batch: Any) -> float | None:
        """Return the training loss of a guess, outputs that are all 0: equal probabilities, or the
        means of the training; None where `num_outputs` is not known.
        """
        if self.num_outputs is None:
            return None
        # Zeros are equal logits, or standardised means
        target = self.standardise(batch[1])
        outputs = torch.zeros(len(target), self.num_outputs, device=target.device)
        return self.members * self.training_loss(outputs, target).item()

    def batch_loss(self, batch: Any) -> Tensor:
        """Return what `training_step` does, the mean loss of the batch, but leave metrics and
        loggers alone.
        """
        return self.training_outputs(batch)[0]

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss, outputs, target = self.training_outputs(batch)
        self.train_metrics.add(loss.detach() / self.members, outputs, target)

        every = self.trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if every and (self.trainer.fit_loop.total_batch_idx + 1) % every == 0:
            # To the loggers directly: one `self.log` in an epoch makes all of its steps slower, by
            # 25 µs, and what the step logs at which a signal stops the run would be lost.
            for logger in self.loggers:
                logger.log_metrics(
                    {"train/loss_step": loss.item() / self.members}, step=self.global_step
                )
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluate(self.val_metrics, *self.evaluation_outputs(batch))

    def test_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        return self.evaluate(self.test_metrics, *self.evaluation_outputs(batch))

    def on_train_epoch_start(self) -> None:
        self.train_metrics.reset()

    def on_train_epoch_end(self) -> None:
        """Log the means of the stage that ends, and start anew."""
        metrics: Any = find_metrics(self.trainer, self)
        # They are the same on all ranks already; sync_dist only tells Lightning so.
        self.log_dict(metrics.compute(), sync_dist=True)
        metrics.reset()

    on_validation_epoch_end = on_test_epoch_end = on_train_epoch_end


class EpochMeans(Callback):
    """Let callbacks see the means of an epoch as it ends, in ``trainer.callback_metrics``.

    The module logs them in its own hooks, which Lightning calls after those of the callbacks.
    """

    # Lightning calls these at every step, 2 µs each, and skips what can't be called.
    on_train_batch_start = on_before_zero_grad = on_before_backward = None  # pyright: ignore[reportAssignmentType]
    on_after_backward = on_before_optimizer_step = on_train_batch_end = None  # pyright: ignore[reportAssignmentType]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        metrics = find_metrics(trainer, pl_module)
        if metrics is not None:
            trainer.callback_metrics.update(metrics.compute())

    on_validation_epoch_end = on_test_epoch_end = on_train_epoch_end


def find_metrics(trainer: Trainer, module: LightningModule) -> StageMetrics | None:
    """Return the metrics of the stage that runs; None if the module has never set any."""
    stage: Any = trainer.state.stage
    return getattr(module, f"{stage.dataloader_prefix}_metrics", None)


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
