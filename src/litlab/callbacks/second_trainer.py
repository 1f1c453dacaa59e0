"""A second Trainer beside that of the run, for a few steps that the run is to know nothing of."""

import copy
import logging
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, Trainer

from litlab.parallel.groups import shards


def second_trainer(run: Trainer, callbacks: list[Callback], **settings: Any) -> Trainer:
    """Build a Trainer that trains like the run's, in one process, and keeps nothing.

    Args:
        run: The run's Trainer. Only its settings are used.
        callbacks: Those of the second Trainer; it has none of the run's.
        **settings: Arguments of the Trainer that are not to be those of the run.
    """
    device = run.strategy.root_device
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    level = log.level
    log.setLevel(logging.WARNING)  # what it says about the machine, the run's Trainer has said
    # The precision as it is, plugins of the user's included, but for those of a strategy that shards.
    whole = not shards(run.strategy)
    precision: dict[str, Any] = {} if whole else {"precision": run.precision}
    plugins = [copy.deepcopy(run.precision_plugin)] if whole else []
    try:
        return Trainer(
            **{
                "accelerator": device.type,
                "devices": [device.index or 0] if device.type == "cuda" else 1,
                "plugins": [*plugins, LightningEnvironment()],  # no look at SLURM's or torchrun's ranks
                **precision,
                "max_epochs": run.max_epochs,
                "max_steps": run.max_steps,
                "limit_train_batches": run.limit_train_batches,
                "limit_val_batches": run.limit_val_batches,
                "accumulate_grad_batches": run.accumulate_grad_batches,
                "gradient_clip_val": run.gradient_clip_val,
                "gradient_clip_algorithm": run.gradient_clip_algorithm,
                "num_sanity_val_steps": 0,
                "callbacks": callbacks,
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
