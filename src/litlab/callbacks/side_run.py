"""Training steps on copies of model and data, of which the run itself sees nothing."""

import copy
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch import nn
from torchmetrics import Metric

from litlab.callbacks.freeze import Freeze
from litlab.callbacks.gradients import AGC
from litlab.callbacks.second_trainer import second_trainer
from litlab.errors import UserError
from litlab.parallel.groups import shards

OF_THE_STEP = (AGC, Freeze)


def check_copies(callback: Callback, run: Trainer, pl_module: LightningModule) -> None:
    """Refuse a run whose model can't be trained as a copy.

    Args:
        callback: Named in the message.
        run: The run's Trainer.
        pl_module: Its model.

    Raises:
        UserError: If the strategy shards the model, or a norm waits for the other processes.
    """
    name = type(callback).__name__
    if shards(run.strategy):
        raise UserError(
            f"trainer.strategy: {type(run.strategy).__name__} shards the model, and {name} in trainer.callbacks trains "
            "a copy of it; use one device or ddp, or leave the callback out"
        )
    if any(isinstance(module, nn.SyncBatchNorm) for module in pl_module.modules()):
        raise UserError(
            f"trainer.sync_batchnorm: {name} in trainer.callbacks trains in each process by itself; set it to false, "
            "or leave the callback out"
        )
    if not pl_module.automatic_optimization:
        raise UserError(
            f"trainer.callbacks: {name} needs a loss from training_step, and {type(pl_module).__name__} optimizes by "
            "itself (automatic_optimization is off); leave the callback out"
        )


def side_run(run: Trainer, pl_module: LightningModule, observer: Callback, **data_settings: Any) -> None:
    """Train a copy of the model until the observer sets ``should_stop``; there is no validation.

    The copy has all that belongs to the model: weights, buffers, metrics, settings. The data is shared, but not its
    loaders. Of the run's callbacks there are copies of those that change what a step learns; the rest would count, save
    or stop what is not theirs. In a run on several processes each takes the same steps by itself, and accumulates the
    batches of all.

    The random state is the caller's to keep: an exception passes through.

    Args:
        run: The run's Trainer, in ``on_fit_start``.
        pl_module: Its model.
        observer: Gets the hooks of the second Trainer, with the copy.
        **data_settings: Attributes that the data has meanwhile, such as another batch_size.

    Raises:
        UserError: If there are no training batches.
    """
    module = copy.deepcopy(pl_module)
    for part in module.modules():
        if isinstance(part, Metric):
            part.sync_on_compute = False  # each process has counted everything
    data = _borrowed(getattr(run, "datamodule", None), data_settings)
    callbacks: Any = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    learning = [copy.deepcopy(callback) for callback in callbacks if isinstance(callback, OF_THE_STEP)]
    second = second_trainer(
        run,
        [*learning, _OnAndOn(), observer],
        limit_val_batches=0,
        accumulate_grad_batches=_accumulated(run) * run.world_size,
    )
    # Signals are left to the run, which they end after the search; and no process asks the others for them.
    second._signal_connector.register_signal_handlers = _nothing
    second.fit_loop.epoch_loop._broadcast_sigterm_tensor = _nothing
    second.fit(module, datamodule=data)
    if second.fit_loop.epoch_loop.batch_progress.total.completed == 0:
        raise UserError(
            "trainer.callbacks: there are no training batches to search with; check the training data, data.batch_size "
            "and trainer.limit_train_batches"
        )


def _accumulated(run: Trainer) -> int:
    """Return the batches of a step in the run's first epoch; a schedule of them begins with the training."""
    callbacks: Any = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    schedules = [callback for callback in callbacks if isinstance(callback, GradientAccumulationScheduler)]
    return schedules[0].get_accumulate_grad_batches(0) if schedules else run.accumulate_grad_batches


class _OnAndOn(Callback):
    """Let a second Trainer go on beyond the end of the run, which is short for a search, and without a validation."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        configs = trainer.strategy.lr_scheduler_configs
        trainer.strategy.lr_scheduler_configs = [config for config in configs if not config.reduce_on_plateau]

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Not earlier: models ask for the length of the run as training starts.
        trainer.fit_loop.max_epochs = -1
        trainer.fit_loop.epoch_loop.max_steps = -1


def _borrowed(data: Any, settings: dict[str, Any]) -> Any:
    """Return a shallow copy of a DataModule that is set up already, and stays so."""
    if data is None:
        return None
    borrowed = copy.copy(data)
    for hook in ("prepare_data", "setup", "teardown"):
        setattr(borrowed, hook, _nothing)
    for name, value in settings.items():
        setattr(borrowed, name, value)
    return borrowed


def _nothing(stage: str | None = None) -> None:
    pass
