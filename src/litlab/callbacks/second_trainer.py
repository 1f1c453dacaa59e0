"""A second Trainer, for steps that the run knows nothing of: those of the finders and of ``fit --check``."""

import copy
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.util.steps import is_part_of_step

SAME = (
    "precision", "max_epochs", "max_steps", "limit_train_batches", "limit_val_batches",
    "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm",
)  # fmt: skip


def second_trainer(run: Trainer, callbacks: list[Callback]) -> Trainer:
    """Build a Trainer that trains like the run's, in one process, and keeps nothing.

    Args:
        run: The run's Trainer. Only its settings are used.
        callbacks: Those of the second Trainer; it has none of the run's.
    """
    device = run.strategy.root_device
    settings: dict[str, Any] = {name: getattr(run, name) for name in SAME}
    return Trainer(
        **settings,
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        plugins=[LightningEnvironment()],  # no look at SLURM's or torchrun's ranks
        callbacks=callbacks,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def train_copy(run: Trainer, pl_module: LightningModule, observer: Callback) -> None:
    """Train a copy of the model, on a copy of the data, until the observer ends it.

    Args:
        run: The run's Trainer, in ``on_fit_start``. What changes its steps comes along.
        pl_module: Its model.
        observer: A callback, which gets the copy.
    """
    callbacks: list[Any] = run.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    chosen = [callback for callback in callbacks if is_part_of_step(callback)]
    module, parts = copy.deepcopy((pl_module, chosen))  # at once, so that the callbacks know the copy
    data = copy.copy(run.datamodule)  # pyright: ignore[reportAttributeAccessIssue]
    second_trainer(run, [*parts, observer]).fit(module, datamodule=data)
