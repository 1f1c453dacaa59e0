"""A second Trainer, for steps that the run knows nothing of: those of the finders and of ``fit --check``."""

import copy
import logging
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.parallel.groups import shards
from litlab.util.steps import is_part_of_step


def train_copy(run: Trainer, pl_module: LightningModule, observer: Callback, **data_settings: Any) -> Trainer:
    """Train a copy of the model until the observer sets ``should_stop``, without validation and schedules.

    Args:
        run: The run's Trainer, in ``on_fit_start``. What changes its steps comes along.
        pl_module: Its model.
        observer: A callback, which gets the copy.
        **data_settings: Attributes that the data has meanwhile, such as another batch_size.

    Returns:
        The Trainer of the copy.
    """
    callbacks: list[Any] = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    chosen = [callback for callback in callbacks if is_part_of_step(callback)]
    module, parts = copy.deepcopy((pl_module, chosen))  # at once, so that the callbacks know the copy
    data: Any = copy.copy(run.datamodule)  # pyright: ignore[reportAttributeAccessIssue]

    # All of them are set up, and the data stays so.
    data.prepare_data = data.setup = data.teardown = _do_nothing
    for part in parts:
        part.setup = _do_nothing
    for name, value in data_settings.items():
        setattr(data, name, value)

    second = second_trainer(run, [*parts, _Endless(), observer], limit_val_batches=0)
    second._signal_connector.register_signal_handlers = _do_nothing  # the run stops after the search
    second.fit(module, datamodule=data)
    return second


class _Endless(Callback):
    """Let a Trainer go on beyond the end of the run, which is short for a search, without a schedule."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.strategy.lr_scheduler_configs = []

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Not earlier: models ask for the length of the run as training starts.
        trainer.fit_loop.max_epochs = trainer.fit_loop.epoch_loop.max_steps = -1


def second_trainer(run: Trainer, callbacks: list[Callback], **settings: Any) -> Trainer:
    """Build a Trainer that trains like the run's, in one process, and keeps nothing.

    Args:
        run: The run's Trainer. Only its settings are used.
        callbacks: Those of the second Trainer; it has none of the run's.
        **settings: Arguments of the Trainer that are not to be those of the run.
    """
    device = run.strategy.root_device
    plugins: list[Any] = [LightningEnvironment()]  # no look at SLURM's or torchrun's ranks
    if shards(run.strategy):
        settings["precision"] = run.precision
    else:
        plugins.append(copy.deepcopy(run.precision_plugin))  # which may be one of the user's own
    same = (
        "max_epochs", "max_steps", "limit_train_batches", "limit_val_batches", "accumulate_grad_batches",
        "gradient_clip_val", "gradient_clip_algorithm",
    )  # fmt: skip
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    level = log.level
    log.setLevel(logging.WARNING)  # what it says about the machine, the run's Trainer has said
    try:
        return Trainer(
            **{
                **{name: getattr(run, name) for name in same},
                "accelerator": device.type,
                "devices": [device.index or 0] if device.type == "cuda" else 1,
                "plugins": plugins,
                "callbacks": callbacks,
                "num_sanity_val_steps": 0,
                "logger": False,
                "enable_checkpointing": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "use_distributed_sampler": False,
                **settings,
            }
        )
    finally:
        log.setLevel(level)


def _do_nothing(*arguments: Any, **settings: Any) -> None:
    pass
