"""What a command's Trainer is built from, besides its callbacks: settings, loggers, how checkpoints
are written.
"""

from contextlib import nullcontext
from importlib import import_module
from typing import Any

from jsonargparse import Namespace
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, LearningRateMonitor, ModelSummary
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.model_helpers import is_overridden

from litlab import parallel  # noqa: F401 - its strategies have names
from litlab.callbacks.progress import ProgressBar
from litlab.callbacks.reporting import check_files
from litlab.callbacks.summary import ModelTable, RunSummary
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.checkpointing.loops import log_at_step
from litlab.checkpointing.resume import make_resumable
from litlab.cli.sections import SECTIONS
from litlab.errors import UserError, building
from litlab.runs.folder import RunFolder
from litlab.runs.loggers import resume_loggers
from litlab.runs.run import Run
from litlab.util.device import keep_freed_memory

# Lightning calls these of every callback at every step, about 5 µs each, even where a callback
# leaves them empty.
STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip


def build_settings(experiment: Any, run: Run | None) -> tuple[Namespace, dict[str, Any]]:
    """Build what the config says of the Trainer.

    Args:
        experiment: The `litlab.cli.fit.Experiment`.
        run: The run whose folder it writes into; None: it writes nothing.

    Returns:
        The callbacks that sections of the config configure, by section, None where one is off; and
        the Trainer's arguments, of which ``callbacks`` are those that the config names.

    Raises:
        UserError: If two of them exclude each other, or one can't be resumed.
    """
    # A run of W&B, MLflow or Comet goes on: its id becomes a setting of the logger. In a copy, as
    # the run keeps its config without it
    folder = run and run.folder
    command = experiment.command
    config = command.config.clone()
    loggers = as_list(config.trainer.logger)
    if folder is not None:
        resume_loggers([logger for logger in loggers if not isinstance(logger, bool)], folder)

    # The callbacks of the sections
    built = command.build("trainer", *SECTIONS, "channels_last", config=config)
    if built.ema is not None and built.swa is not None:
        raise UserError(
            "swa: ema averages the weights too, and one average can be kept; set ema or swa to null"
        )
    if built.compile is not None and built.compile.mode is None:
        built.compile = None

    # The Trainer's arguments
    settings: dict[str, Any] = dict(built.trainer)
    if command.verb == "predict":  # one process writes the file
        settings |= {"strategy": "auto", "devices": 1, "num_nodes": 1}
    if getattr(experiment.data, "shares_samples", False):  # among processes, without padding
        settings["use_distributed_sampler"] = False
    # Without a run an empty list: None would give Lightning's own logger, and a folder for it
    named = settings["logger"]
    settings["logger"] = [] if folder is None else build_loggers(experiment, named, folder)

    # The callbacks that the config names; then ours that show something, unless a setting turns
    # them off or the config names others
    resumes = command.verb == "fit" and experiment.checkpoint is not None
    settings["callbacks"] = make_resumable(as_list(settings["callbacks"]), resumes)
    shows_rates = lacks_display(settings, "logger", LearningRateMonitor)
    built.learning_rates = LearningRateMonitor() if shows_rates else None
    shows_progress = lacks_display(settings, "enable_progress_bar", LightningProgressBar)
    built.progress = ProgressBar() if shows_progress else None
    shows_model = lacks_display(settings, "enable_model_summary", ModelSummary)
    built.model_table = ModelTable() if shows_model else None
    return built, settings


def lacks_display(settings: dict[str, Any], setting: str, kind: type[Callback]) -> bool:
    """Return whether a setting turns a kind of display on, and the config names none of it."""
    return settings[setting] not in (False, []) and not has_callback(settings["callbacks"], kind)


def finish_trainer(experiment: Any, settings: dict[str, Any], run: Run | None) -> Trainer:
    """Build the Trainer from its arguments, and give it what no argument can.

    Args:
        experiment: The `litlab.cli.fit.Experiment`.
        settings: The arguments.
        run: As of `build_settings`.
    """
    # Left out, it follows from the callbacks: Lightning's default would add a ModelCheckpoint
    checkpoint, verb = experiment.checkpoint, experiment.command.verb
    if settings["enable_checkpointing"] is None:
        settings["enable_checkpointing"] = has_callback(settings["callbacks"], Checkpoint)
    with building("trainer"):
        trainer = experiment.command.trainer_class(**settings)

    # Before anything is trained that a picture is to show; a validation draws none.
    if run is not None and run.folder is not None and verb != "validate":
        check_files(trainer, run.folder.path)
    choose_checkpoint_io(trainer)
    lighten_steps(trainer)
    if checkpoint is not None and verb != "fit":  # where results belong in the curves of the run
        log_at_step(trainer, checkpoint.get("global_step", 0))
    return trainer


def build_loggers(experiment: Any, named: Any, run: RunFolder) -> list[Logger]:
    """Return TensorBoard in the run folder, and what ``trainer.logger`` names in addition.

    Args:
        experiment: The `litlab.cli.fit.Experiment`. What was logged after the checkpoint that a fit
            continues from is hidden.
        named: The loggers that the config names, built.
        run: The run's folder.
    """
    # TensorBoard hides what a run logged after its last checkpoint: these steps are done again
    resumed = experiment.checkpoint if experiment.command.verb == "fit" else None
    step = resumed and resumed["global_step"]
    # Its name is empty and its version the name of the folder: so it writes into the run's own
    tensorboard = TensorBoardLogger(
        run.path.parent, "", run.path.name, default_hp_metric=False, purge_step=step
    )
    # One for TensorBoard is there already, if the config names one or says `true`
    further = [
        logger for logger in as_list(named) if not isinstance(logger, TensorBoardLogger | bool)
    ]
    return [tensorboard, *further]


def choose_checkpoint_io(trainer: Trainer) -> None:
    """Write checkpoints whole or not at all, where the strategy writes files and the config names
    no other way.
    """
    strategy = trainer.strategy
    name = type(strategy).__name__  # not by class: most runs need not import ours
    # What trainer.plugins names stays
    if not isinstance(strategy.checkpoint_io, TorchCheckpointIO):
        return
    if name == "ShardedStrategy":
        strategy.checkpoint_io = import_module("litlab.checkpointing.sharded").ShardedCheckpointIO()
    elif name in ("SingleDeviceStrategy", "DDPStrategy"):
        strategy.checkpoint_io = AtomicCheckpointIO()


def lighten_steps(trainer: Trainer) -> None:
    """Make steps cheaper: no hooks or profiler that do nothing, and memory that is kept on a
    CPU.
    """
    profiler: Any = trainer.profiler  # pyright: ignore[reportAttributeAccessIssue]
    if type(profiler) is PassThroughProfiler:
        # Called 27 times a step, and Lightning's own takes 1 µs each time to profile nothing
        context = nullcontext()
        profiler.profile = lambda action_name: context  # pyright: ignore[reportAttributeAccessIssue]
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for hook in STEP_HOOKS:
            if getattr(type(callback), hook) is getattr(Callback, hook):
                setattr(callback, hook, None)  # Lightning skips what can't be called
    if trainer.strategy.root_device.type == "cpu":  # GPUs have torch's allocator, which keeps it
        keep_freed_memory()


def search_learning_rate(trainer: Trainer, model: LightningModule, data: Any) -> None:
    """Let an LRFinder find the rate, if the config names one: a training before the training."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if hasattr(callback, "search"):
            callback.search(trainer, model, data)


def check_trained(trainer: Trainer) -> None:
    """Refuse a fit that has seen no batch."""
    if trainer.fit_loop.total_batch_idx < 0:
        raise UserError(
            "fit: nothing was trained, as there was no training batch or no time; check the "
            "training data, data.batch_size, trainer.limit_train_batches and trainer.max_time"
        )


def is_testable(model: LightningModule, data: LightningDataModule) -> bool:
    """Return whether there is something to test, and how; if not, say why."""
    if not is_overridden("test_step", model):
        reason = f"{type(model).__name__} has no test_step"
    elif not is_overridden("test_dataloader", data):
        reason = f"{type(data).__name__} has no test_dataloader"
    elif not getattr(data, "has_test", True):
        reason = "There is no test split"
    else:
        return True
    rank_zero_info(f"{reason}: not tested")
    return False


def print_summary(trainer: Trainer) -> None:
    """Print the summary of the run, where one was made."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(callback, RunSummary):
            callback.print_summary(trainer)


def as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def has_callback(callbacks: list[Callback], kind: type[Callback]) -> bool:
    return any(isinstance(callback, kind) for callback in callbacks)
