"""The callbacks of a run: those of the config's sections, litlab's own, and those that trainer.callbacks names."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import (
    BackboneFinetuning,
    BaseFinetuning,
    BasePredictionWriter,
    BatchSizeFinder,
    Checkpoint,
    GradientAccumulationScheduler,
    LearningRateFinder,
    LearningRateMonitor,
    ModelPruning,
    SpikeDetection,
)
from lightning.pytorch.callbacks import ModelSummary as LightningModelSummary
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from litlab.callbacks import (
    AGC,
    EMA,
    SWA,
    ActivationCheckpointing,
    BatchFinder,
    Compile,
    FreeGradients,
    Freeze,
    LRFinder,
    ModelSummary,
    ProgressBar,
    RunSummary,
)
from litlab.callbacks.channels_last import ChannelsLast
from litlab.callbacks.threads import Threads
from litlab.checkpointing.accumulation import AccumulationSchedule
from litlab.checkpointing.resume import ExactResume
from litlab.errors import UserError
from litlab.optim import Schedule
from litlab.runs.durable_logs import DurableLogs
from litlab.runs.recorder import RunRecord
from litlab.runs.signals import StopSignals
from litlab.runs.tuned import Tuned, Unfrozen
from litlab.tasks.base import ExperimentModule

BASES = (Callback, Checkpoint, BaseFinetuning, BasePredictionWriter, LightningProgressBar)
PARTS_OF_A_STEP = (
    AGC,
    EMA,
    SWA,
    ActivationCheckpointing,
    ChannelsLast,
    Compile,
    Freeze,
    Threads,
)  # barebones keeps these
LIGHTNING_FINDERS = (BatchSizeFinder, LearningRateFinder)


def callback_list(
    sections: list[Callback],
    config: Any,
    model: LightningModule,
    logged: bool,
    resumes: bool,
    test_follows: Callable[[], bool],
) -> list[Callback]:
    """Put the callbacks of a run together.

    A progress bar or a LearningRateMonitor in ``trainer.callbacks`` takes the place of litlab's. ``barebones`` leaves
    out all that measures, logs or writes, ``fast_dev_run`` all that writes.

    Args:
        sections: Those of the config's sections.
        config: The section ``trainer``.
        model: The module that they are for.
        logged: Whether the run has a logger.
        resumes: Whether it continues from a checkpoint.
        test_follows: Returns at the end of a fit whether its test follows.

    Raises:
        UserError: If one of ``trainer.callbacks`` can't work.
    """
    if _has(sections, EMA) and _has(sections, SWA):
        raise UserError("swa: ema averages the weights too, and one average can be kept; set ema or swa to null")
    named = [
        AccumulationSchedule(callback.scheduling) if type(callback) is GradientAccumulationScheduler else callback
        for callback in _named(config)
    ]
    # Before all that looks at optimizer and data; and the learning rate depends on the batch size.
    first = [callback for kind in (BatchFinder, LRFinder) for callback in named if isinstance(callback, kind)]
    own = [callback for callback in named if callback not in first]
    for callback in own:
        _check(callback, model, resumes)
        if isinstance(callback, GradientAccumulationScheduler) and config["accumulate_grad_batches"] != 1:
            raise UserError(
                f"trainer.accumulate_grad_batches: {config['accumulate_grad_batches']} has no effect beside "
                "GradientAccumulationScheduler in trainer.callbacks; set it to 1, or leave the callback out"
            )
    helpers: list[Callback] = []
    finders: list[Callback] = [callback for callback in own if isinstance(callback, LIGHTNING_FINDERS)]
    if finders:
        helpers.append(Tuned(finders, resumes))
    if resumes and _has(own, BaseFinetuning):
        helpers.append(Unfrozen())
    if resumes:
        for finder in (callback for callback in own if type(callback) in LIGHTNING_FINDERS):
            rank_zero_info(f"{type(finder).__name__}: the run keeps what was found when it started")
        own = [callback for callback in own if type(callback) not in LIGHTNING_FINDERS]
    sections = [callback for callback in sections if not (isinstance(callback, Compile) and callback.mode is None)]
    if config["barebones"]:
        return [
            *first,
            *(callback for callback in sections if isinstance(callback, PARTS_OF_A_STEP)),
            StopSignals(),
            *own,
        ]
    if config["fast_dev_run"]:
        sections = [callback for callback in sections if not isinstance(callback, Checkpoint)]
    callbacks = [*first, *sections]
    if logged and not _has(own, LearningRateMonitor):
        callbacks.append(LearningRateMonitor())
    if config["enable_progress_bar"] is not False and not _has(own, LightningProgressBar):
        callbacks.append(ProgressBar())
    return [
        *callbacks, FreeGradients(), ExactResume(), DurableLogs(), RunRecord(test_follows), StopSignals(), RunSummary(),
        *helpers, *own,
    ]  # fmt: skip


def _has(callbacks: list[Callback], kind: type[Callback]) -> bool:
    return any(isinstance(callback, kind) for callback in callbacks)


def _named(config: Any) -> list[Callback]:
    """Return the callbacks that ``trainer.callbacks`` names, and a model summary if none of them is one."""
    named = config["callbacks"] or []
    callbacks = list(named) if isinstance(named, list) else [named]
    wanted = config["enable_model_summary"] is not False and not config["barebones"]
    return [*callbacks, ModelSummary()] if wanted and not _has(callbacks, LightningModelSummary) else callbacks


def _check(callback: Callback, model: LightningModule, resumes: bool) -> None:
    """Refuse what would fail in the middle of the run, and work around a bug of Lightning."""
    name = type(callback).__name__
    if type(callback) in BASES:
        raise UserError(f"trainer.callbacks: {name} does nothing by itself; name a subclass of it")
    if resumes and isinstance(callback, ModelPruning):
        raise UserError(
            f"trainer.callbacks: {name} keeps no masks in checkpoints, so the run can't be resumed; start a new one "
            "from its weights with --init_from, or leave the callback out"
        )
    if isinstance(callback, BackboneFinetuning):
        frozen_by_lightning = type(callback).freeze_before_training is BackboneFinetuning.freeze_before_training
        if frozen_by_lightning and not isinstance(getattr(model, "backbone", None), nn.Module):
            raise UserError(
                f"trainer.callbacks: {name} freezes model.backbone, which {type(model).__name__} does not have; give "
                "it that attribute, or leave the callback out"
            )
        if isinstance(model, ExperimentModule) and model.schedule is not None:
            _check_schedule(name, model.schedule)
    if isinstance(callback, SpikeDetection) and not hasattr(callback, "running"):
        # Lightning (2.6.6) restores the running mean of a checkpoint under a name that it never sets.
        callback.running = callback.running_mean  # pyright: ignore[reportAttributeAccessIssue]


def _check_schedule(name: str, schedule: Schedule) -> None:
    """Refuse a schedule that fails, epochs later, when the callback adds a group of parameters to the optimizer."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)
    scheduler: Any = schedule.configure(optimizer, steps=10, epochs=10)["scheduler"]
    optimizer.add_param_group({"params": [torch.zeros(1)], "lr": 0.1})
    optimizer.step()
    try:
        scheduler.step(*([0.0] if isinstance(scheduler, ReduceLROnPlateau) else []))
    except (ValueError, KeyError, IndexError, RuntimeError) as error:
        raise UserError(
            f"trainer.callbacks: {name} adds a group of parameters to the optimizer, which {type(scheduler).__name__} "
            "can't take; set another model.schedule, or none"
        ) from error
