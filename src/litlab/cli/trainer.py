"""The Trainer of a command: its loggers, plugins and callbacks, in the order in which they act."""

from contextlib import nullcontext
from importlib import import_module
from typing import Any

from jsonargparse import Namespace
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.utilities.model_helpers import is_overridden

from litlab import parallel  # noqa: F401 - its strategies have names
from litlab.callbacks.gradients import FreeGradients
from litlab.callbacks.lr_finder import LRFinder
from litlab.callbacks.progress import ProgressBar
from litlab.callbacks.summary import RunSummary
from litlab.checkpointing.internals import log_at_step
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.checkpointing.resume import ExactResume, make_resumable
from litlab.cli.config import Command
from litlab.cli.sections import SECTIONS, section_callbacks
from litlab.errors import UserError, building
from litlab.runs.folder import RunFolder
from litlab.runs.record import RunRecord, resume_loggers
from litlab.runs.signals import StopSignals
from litlab.util.device import keep_freed_memory

# Lightning calls these of every callback at every step, about 5 µs each, even where a callback leaves them empty.
STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip


def build_trainer(experiment: Any, run: RunFolder | None) -> Trainer:
    """Build the Trainer that the config describes, with the callbacks of its sections.

    Args:
        experiment: The `litlab.cli.fit.Experiment`.
        run: The folder for what it writes; None: it writes nothing.
    """
    command, checkpoint = experiment.command, experiment.checkpoint
    config = command.config.clone()
    if run is not None:
        resume_loggers([logger for logger in _as_list(config.trainer.logger) if not isinstance(logger, bool)], run)
    built = command.build("trainer", *SECTIONS, "channels_last", config=config)
    settings: dict[str, Any] = dict(built.trainer)

    if command.verb == "predict":  # one process writes the file
        settings |= {"strategy": "auto", "devices": 1, "num_nodes": 1}
    if getattr(experiment.data, "shares_samples", False):  # among processes, without padding
        settings["use_distributed_sampler"] = False
    settings["logger"] = [] if run is None else build_loggers(command, settings["logger"], run, checkpoint)
    settings["callbacks"] = arrange_callbacks(experiment, built, settings)
    if settings["enable_checkpointing"] is None:
        settings["enable_checkpointing"] = _has(settings["callbacks"], Checkpoint)

    with building("trainer"):
        trainer = command.trainer_class(**settings)
    choose_checkpoint_io(trainer)
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
    further = [logger for logger in _as_list(named) if not isinstance(logger, TensorBoardLogger | bool)]
    return [own, *further]


def arrange_callbacks(experiment: Any, built: Namespace, settings: dict[str, Any]) -> list[Callback]:
    """Put the callbacks of a command in order: finders, sections, those of the machinery, and ``trainer.callbacks``.

    A progress bar or LearningRateMonitor in ``trainer.callbacks`` takes the place of litlab's.

    Args:
        experiment: The `litlab.cli.fit.Experiment`.
        built: The config, its sections built.
        settings: The Trainer's arguments.

    Raises:
        UserError: If two of them exclude each other, or one can't be resumed.
    """
    command = experiment.command
    if built.ema is not None and built.swa is not None:
        raise UserError("swa: ema averages the weights too, and one average can be kept; set ema or swa to null")
    resumes = command.verb == "fit" and experiment.checkpoint is not None
    named = make_resumable(_as_list(settings["callbacks"]), resumes)
    finders = [callback for callback in named if isinstance(callback, LRFinder)]
    named = [callback for callback in named if callback not in finders]

    shown: list[Callback] = []
    if settings["logger"] and not _has(named, LearningRateMonitor):
        shown.append(LearningRateMonitor())
    if settings["enable_progress_bar"] is not False and not _has(named, LightningProgressBar):
        shown.append(ProgressBar())

    record = RunRecord(command.settings)
    own = [FreeGradients(), ExactResume(), record, StopSignals(), RunSummary()]
    return [*finders, *section_callbacks(built), *shown, *own, *named]


def choose_checkpoint_io(trainer: Trainer) -> None:
    """Write checkpoints whole or not at all, where the strategy writes files and the config names no other way."""
    strategy = trainer.strategy
    name = type(strategy).__name__  # not by class: most runs need not import ours
    if not isinstance(strategy.checkpoint_io, TorchCheckpointIO):
        return
    if name == "ShardedStrategy":
        strategy.checkpoint_io = import_module("litlab.checkpointing.sharded").ShardedCheckpointIO()
    elif name in ("SingleDeviceStrategy", "DDPStrategy", "PipelineStrategy"):
        strategy.checkpoint_io = AtomicCheckpointIO()


def lighten_steps(trainer: Trainer) -> None:
    """Make steps cheaper: no hooks or profiler that do nothing, and memory that is kept on a CPU."""
    if type(trainer.profiler) is PassThroughProfiler:  # pyright: ignore[reportAttributeAccessIssue]
        trainer.profiler = NoProfiler()  # pyright: ignore[reportAttributeAccessIssue]
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for hook in STEP_HOOKS:
            if getattr(type(callback), hook) is getattr(Callback, hook):
                setattr(callback, hook, None)  # Lightning skips what can't be called
    if trainer.strategy.root_device.type == "cpu":
        keep_freed_memory()


class NoProfiler(PassThroughProfiler):
    """Profile nothing, 27 times a step; Lightning's default takes 1 µs each time to do so."""

    _context = nullcontext()

    def profile(self, action_name: str) -> Any:
        return self._context


def check_trained(trainer: Trainer) -> None:
    """Refuse a fit that has seen no batch."""
    if trainer.fit_loop.epoch_loop.batch_progress.total.completed == 0:
        raise UserError(
            "fit: nothing was trained, as there was no training batch or no time; check the training data, "
            "data.batch_size, trainer.limit_train_batches and trainer.max_time"
        )


def explain_untestable(model: LightningModule, data: LightningDataModule) -> str | None:
    """Return why a fit can't be followed by a test; None if it can."""
    if not is_overridden("test_step", model):
        return f"{type(model).__name__} has no test_step"
    if not is_overridden("test_dataloader", data):
        return f"{type(data).__name__} has no test_dataloader"
    return None if getattr(data, "has_test", True) else "There is no test split"


def print_summary(trainer: Trainer) -> None:
    """Print the summary of the run, where one was made."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, RunSummary):
            callback.print_summary(trainer)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _has(callbacks: list[Callback], kind: type[Callback]) -> bool:
    return any(isinstance(callback, kind) for callback in callbacks)
