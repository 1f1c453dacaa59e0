"""The Trainer of a command: its loggers, plugins and callbacks, in the order in which they act."""

import math
import os
import re
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.callbacks import ModelSummary as LightningModelSummary
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from litlab import parallel  # noqa: F401 - its strategies have names
from litlab.callbacks.activation_checkpointing import ActivationCheckpointing
from litlab.callbacks.averaging import AveragedWeights
from litlab.callbacks.channels_last import ChannelsLast
from litlab.callbacks.compile import Compile
from litlab.callbacks.finder import Finder
from litlab.callbacks.free_gradients import FreeGradients
from litlab.callbacks.freeze import Freeze
from litlab.callbacks.model_summary import ModelSummary
from litlab.callbacks.progress import ProgressBar
from litlab.callbacks.summary import RunSummary
from litlab.callbacks.threads import Threads
from litlab.checkpointing.internals import log_at_step
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.checkpointing.lightning_callbacks import make_resumable
from litlab.checkpointing.resume import ExactResume
from litlab.cli.config import Command
from litlab.cli.sections import SECTIONS, section_callbacks
from litlab.errors import UserError, building
from litlab.runs.find import without_member
from litlab.runs.folder import COMPILED, ROOT, RunFolder
from litlab.runs.loggers import keep_csv_rows, resume_loggers
from litlab.runs.record import RunRecord
from litlab.runs.signals import StopSignals
from litlab.util.device import keep_freed_memory
from litlab.util.variables import TRIAL

# Lightning calls these of every callback at every step, about 5 µs each, even where a callback leaves them empty.
STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip
# What barebones keeps of the sections: the rest measures, logs or writes.
PARTS_OF_A_STEP = (ActivationCheckpointing, AveragedWeights, ChannelsLast, Compile, Freeze, Threads)


def build_trainer(experiment: Any, run: RunFolder | None) -> Trainer:
    """Build the Trainer that the config describes, with the callbacks of its sections.

    Args:
        experiment: The `litlab.cli.fit.Experiment`.
        run: The folder for what it writes; None: it writes nothing.
    """
    command, checkpoint = experiment.command, experiment.checkpoint
    loggers = command.config.trainer.logger
    if run is not None:
        command.config.trainer.logger = resume_loggers(loggers, run)
    built = command.build("trainer", *SECTIONS, "channels_last", "threads")
    command.config.trainer.logger = loggers  # the config that is kept names no run of theirs
    settings: dict[str, Any] = dict(built.trainer)
    resumes = command.verb == "fit" and checkpoint is not None

    if command.verb == "predict":  # one process writes the file
        settings |= {"strategy": "auto", "devices": 1, "num_nodes": 1}
    settings["logger"] = [] if run is None else build_loggers(command, settings["logger"], run, checkpoint)
    settings["plugins"] = _choose_plugins(settings)
    settings["callbacks"] = arrange_callbacks(command, built, settings, resumes)
    if getattr(experiment.data, "shares_samples", False):  # among processes, without padding
        settings["use_distributed_sampler"] = False
    if settings["barebones"]:
        settings |= {"log_every_n_steps": None, "logger": None}
    if settings["enable_checkpointing"] is None:
        settings["enable_checkpointing"] = any(isinstance(one, Checkpoint) for one in settings["callbacks"])

    with building("trainer"):
        trainer = command.trainer_class(**settings)
    lighten_steps(trainer)
    if checkpoint is not None and command.verb != "fit":  # where results belong in the curves of the run
        log_at_step(trainer, checkpoint.get("global_step", 0))
    return trainer


def build_loggers(command: Command, named: Any, run: RunFolder, checkpoint: dict[str, Any] | None) -> list[Logger]:
    """Return TensorBoard in the run folder, and what ``trainer.logger`` names in addition.

    Args:
        command: The command.
        named: The loggers that the config names, built.
        run: The run's folder.
        checkpoint: The checkpoint that a fit continues from: what was logged after it is hidden.
    """
    step = checkpoint["global_step"] if command.verb == "fit" and checkpoint is not None else None
    own = TensorBoardLogger(run.path.parent, "", run.path.name, default_hp_metric=False, purge_step=step)
    further = [] if named is None or isinstance(named, bool) else named if isinstance(named, list) else [named]
    if command.verb != "fit" or command.config.resume:
        keep_csv_rows(further, math.inf if step is None else step)
    return [own, *(logger for logger in further if not isinstance(logger, TensorBoardLogger))]


def arrange_callbacks(command: Command, built: Namespace, settings: dict[str, Any], resumes: bool) -> list[Callback]:
    """Put the callbacks of a command in order: finders, sections, those of the machinery, and ``trainer.callbacks``.

    A progress bar or a LearningRateMonitor in ``trainer.callbacks`` takes the place of litlab's. ``barebones`` leaves
    out all that measures, logs or writes, ``fast_dev_run`` all that writes.

    Args:
        command: The command.
        built: The config, its sections built.
        settings: The Trainer's arguments.
        resumes: Whether a fit continues from a checkpoint.

    Raises:
        UserError: If two of them exclude each other.
    """
    sections = section_callbacks(built)
    if built.ema is not None and built.swa is not None:
        raise UserError("swa: ema averages the weights too, and one average can be kept; set ema or swa to null")
    callbacks = settings["callbacks"] or []
    named = make_resumable(callbacks if isinstance(callbacks, list) else [callbacks], resumes)
    finders = [callback for callback in named if isinstance(callback, Finder)]
    named = [callback for callback in named if callback not in finders]
    sections = [one for one in sections if not (isinstance(one, Compile) and one.mode is None)]
    for callback in sections:
        if isinstance(callback, Compile) and not (settings["fast_dev_run"] or settings["barebones"]):
            callback.cache = find_compile_cache(command.config.experiment)

    if settings["barebones"]:
        kept = [callback for callback in sections if isinstance(callback, PARTS_OF_A_STEP)]
        return [*finders, *kept, StopSignals(), *named]
    if settings["fast_dev_run"]:
        sections = [callback for callback in sections if not isinstance(callback, Checkpoint)]

    shown: list[Callback] = []
    if settings["logger"] and not _has(named, LearningRateMonitor):
        shown.append(LearningRateMonitor())
    if settings["enable_progress_bar"] is not False and not _has(named, LightningProgressBar):
        shown.append(ProgressBar())
    if settings["enable_model_summary"] is not False and not _has(named, LightningModelSummary):
        shown.append(ModelSummary())

    record = RunRecord(command.settings, command.config.test_after_fit)
    own = [FreeGradients(), ExactResume(), record, StopSignals(), RunSummary()]
    return [*finders, *sections, *shown, *own, *_trial_report(), *named]


def lighten_steps(trainer: Trainer) -> None:
    """Make steps cheaper: callbacks without step hooks that do nothing, and memory that is kept on a CPU."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for hook in STEP_HOOKS:
            if getattr(type(callback), hook) is getattr(Callback, hook):
                setattr(callback, hook, None)  # Lightning skips what can't be called
    if trainer.strategy.root_device.type == "cpu":
        keep_freed_memory()


def find_compile_cache(experiment: str) -> Path:
    """Return the folder of an experiment's compiled code, which is in the working directory whatever the config says.

    What is in it is executed. So it is not in the folder of a run, nor where a run's config or its name may lead: runs
    and configs of others must not bring code.
    """
    name = re.sub(r"\W+", "-", without_member(experiment)).strip("-")
    return ROOT / COMPILED / (name or "default")


def explain_untestable(trainer: Trainer, model: LightningModule, data: LightningDataModule) -> str | None:
    """Return why a fit can't be followed by a test; None if it can."""
    if trainer.barebones:
        return "trainer.barebones logs nothing"
    if not is_overridden("test_step", model):
        return f"{type(model).__name__} has no test_step"
    if not is_overridden("test_dataloader", data):
        return f"{type(data).__name__} has no test_dataloader"
    if has_only_searched(trainer):
        return "Nothing was to be trained"
    return None if getattr(data, "has_test", True) else "There is no test split"


def has_only_searched(trainer: Trainer) -> bool:
    """Return whether a fit was to end with the search of its finders, and has."""
    callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    ends = any(isinstance(callback, Finder) and not callback.train for callback in callbacks)
    return ends and trainer.fit_loop.epoch_loop.batch_progress.total.completed == 0


def check_trained(trainer: Trainer) -> None:
    """Refuse to call a fit finished that has seen no batch, unless it was only to search.

    Raises:
        UserError: If that is so.
    """
    if trainer.fit_loop.epoch_loop.batch_progress.total.completed == 0 and not has_only_searched(trainer):
        raise UserError(
            "fit: nothing was trained, as there was no training batch or no time; check the training data, "
            "data.batch_size, trainer.limit_train_batches and trainer.max_time"
        )


def print_summary(trainer: Trainer) -> None:
    """Print the summary of the run, where one was made."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, RunSummary):
            callback.print_summary(trainer)


def _choose_plugins(settings: dict[str, Any]) -> list[Any]:
    """Return the plugins that ``trainer.plugins`` names, and what writes checkpoints whole or not at all."""
    named = settings["plugins"] or []
    chosen = list(named) if isinstance(named, list | tuple) else [named]
    if any(isinstance(plugin, CheckpointIO) for plugin in chosen):
        return chosen
    strategy = settings["strategy"]
    if strategy == "fsdp2" or type(strategy).__name__ == "ShardedStrategy":
        from litlab.checkpointing.sharded import ShardedCheckpointIO

        return [*chosen, ShardedCheckpointIO()]
    name = strategy if isinstance(strategy, str) else type(strategy).__name__
    plain = name in ("auto", "pipeline", "PipelineStrategy") or name.startswith("ddp")
    if plain or type(strategy) in (DDPStrategy, SingleDeviceStrategy):  # others write folders of their own
        chosen.append(AtomicCheckpointIO())
    return chosen


def _trial_report() -> list[Callback]:
    """Return what reports to the sweep that this process is a trial of, if it is one."""
    if TRIAL not in os.environ:
        return []
    from litlab.runs.trial_report import TrialReport

    return [TrialReport()]


def _has(callbacks: list[Callback], kind: type[Callback]) -> bool:
    return any(isinstance(callback, kind) for callback in callbacks)
