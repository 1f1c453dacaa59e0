"""What the command line adds to Lightning's Trainer: the run folder's logger, whole checkpoint files, fewer hooks."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter, Checkpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from litlab.callbacks import Compile
from litlab.callbacks.finder import Finder
from litlab.checkpointing.io import AtomicCheckpointIO
from litlab.checkpointing.sharded import ShardedCheckpointIO
from litlab.cli.environment import LONGEST_NAME, check_folder
from litlab.data.module import ExperimentData
from litlab.errors import UserError
from litlab.parallel import PipelineStrategy, ShardedStrategy
from litlab.runs import claim
from litlab.runs.durable_logs import append_to_csv_files
from litlab.runs.folder import COMPILED, ROOT, root_of
from litlab.runs.lock import is_first_process
from litlab.runs.resume_plan import ResumePlan
from litlab.runs.seed_group import without_seed
from litlab.util.host_memory import keep_freed_memory

# Lightning calls these of every callback at every step, about 5 µs each, even where a callback leaves them empty.
STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward",
    "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip

PROFILERS = ("simple", "advanced", "pytorch", "xla")


def loggers(config: Any, experiment: str, plan: ResumePlan, checkpoint: dict[str, Any] | None) -> list[Logger]:
    """TensorBoard in the run folder, and what ``trainer.logger`` names in addition.

    The folder of a new run is made here, and locked.

    Args:
        config: The section ``trainer``.
        experiment: The name of a new run's folder.
        plan: What the command continues from.
        checkpoint: The checkpoint that it continues from. What was logged after it, before a crash, is hidden.

    Raises:
        UserError: If there can be no folder of that name, or it is that of another run.
    """
    named = config["logger"]
    further = [] if named is None or isinstance(named, bool) else named if isinstance(named, list) else [named]
    if plan.run is not None:
        step = checkpoint["global_step"] if plan.resumes and checkpoint else None
        run, others = plan.run.path, [logger for logger in further if not isinstance(logger, TensorBoardLogger)]
        append_to_csv_files(others, checkpoint, plan.resumes)
        return [TensorBoardLogger(run.parent, "", run.name, default_hp_metric=False, purge_step=step), *others]
    first = is_first_process() and not config["fast_dev_run"]
    own = next((logger for logger in further if isinstance(logger, TensorBoardLogger)), None)
    if own is not None:  # the folder is as it says
        if first:
            claim.own_folder(Path(own.log_dir))
        return [own, *(logger for logger in further if logger is not own)]
    root = root_of(config)
    claim.check_experiment(root, experiment)
    run = (plan.new or claim.new_run(root, experiment)) if first else None
    version = None if run is None else run.path.name
    return [TensorBoardLogger(root, experiment, version, default_hp_metric=False), *further]


def check_folders(config: Any) -> None:
    """Check the folders that a new fit writes into, before the data is read.

    Args:
        config: The parsed config.

    Raises:
        UserError: If one of them can't be written to, or a name is too long for a file.
    """
    if config.trainer.logger is not False and not config.trainer.barebones:
        root = root_of(config.trainer)
        check_folder("experiment" if len(config.experiment) > LONGEST_NAME else str(root), root / config.experiment)
    settings = (config.checkpoint or {}).get("init_args") or {}
    for name in ("dirpath", "filename"):
        if value := settings.get(name):
            check_folder(f"checkpoint.{name}", Path(value))


def compile_cache(experiment: str) -> Path:
    """Return the folder of an experiment's compiled code, which is in the working directory whatever the config says.

    What is in it is executed. So it is not in the folder of a run, nor where a run's config or its name may lead: runs
    and configs of others must not bring code.
    """
    return ROOT / COMPILED / (re.sub(r"\W+", "-", experiment).strip("-") or "default")


def keep_compiled(callbacks: list[Callback], config: Any, experiment: str) -> None:
    """Let the next run of an experiment, or its next seed, find what this one compiles, unless nothing is written."""
    for callback in callbacks:
        if isinstance(callback, Compile) and not (config["fast_dev_run"] or config["barebones"]):
            callback.cache = compile_cache(without_seed(experiment))


def searched_only(trainer: Trainer) -> bool:
    """Return whether a fit was to end with the search of its finders, and has."""
    callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    ends = any(isinstance(callback, Finder) and not callback.train for callback in callbacks)
    return ends and trainer.fit_loop.epoch_loop.batch_progress.total.completed == 0


class SomethingTrained(Callback):
    """Refuse to call a fit finished that has seen no batch, unless it was only to search.

    Raises:
        UserError: If that is so.
    """

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the count of batches, those before a resumption included."""
        if trainer.fit_loop.epoch_loop.batch_progress.total.completed == 0 and not searched_only(trainer):
            raise UserError(
                "fit: nothing was trained, as there was no training batch or no time; check the training data, "
                "data.batch_size, trainer.limit_train_batches and trainer.max_time"
            )


def plugins(config: Any) -> list[Any]:
    """Return the plugins that ``trainer.plugins`` names, and what writes checkpoints completely or not at all."""
    named = config["plugins"] or []
    chosen = list(named) if isinstance(named, list | tuple) else [named]
    strategy = config["strategy"]
    ours = strategy == "fsdp2" or isinstance(strategy, ShardedStrategy)
    whole = (  # a subclass of DDPStrategy may write a directory, as DeepSpeedStrategy does
        strategy in ("auto", "pipeline") or strategy.startswith("ddp")
        if isinstance(strategy, str)
        else isinstance(strategy, PipelineStrategy) or type(strategy) in (DDPStrategy, SingleDeviceStrategy)
    )
    if (ours or whole) and not any(isinstance(plugin, CheckpointIO) for plugin in chosen):  # others write their own
        chosen.append(ShardedCheckpointIO() if ours else AtomicCheckpointIO())
    return chosen


def check_profiler(profiler: Any) -> None:
    """Refuse a profiler that can't be built, before it fails halfway and complains again when it is collected.

    Args:
        profiler: ``trainer.profiler`` of the config: None, a name, or a class path with its arguments.

    Raises:
        UserError: If it is unknown or lacks its package.
    """
    name = getattr(profiler, "class_path", profiler)
    if name is None:
        return
    if isinstance(profiler, str) and profiler not in PROFILERS:
        raise UserError(
            f"trainer.profiler: there is no profiler '{profiler}'; choose {', '.join(PROFILERS)}, or the class path of "
            "a Profiler"
        )
    if name.rpartition(".")[-1] in ("xla", "XLAProfiler") and find_spec("torch_xla") is None:
        raise UserError("trainer.profiler: xla needs the package torch_xla; install it, or choose another profiler")


def implied(config: Any, data: LightningDataModule, callbacks: list[Callback]) -> dict[str, Any]:
    """Return settings of the Trainer that follow from the rest.

    Args:
        config: The section ``trainer``.
        data: The run's data. `ExperimentData` shards it by itself, without padding.
        callbacks: All callbacks of the run.
    """
    settings: dict[str, Any] = {}
    if isinstance(data, ExperimentData):
        settings["use_distributed_sampler"] = False
    if config["barebones"]:
        settings["log_every_n_steps"] = None  # which Lightning asks for
    if config["enable_checkpointing"] is None:
        settings["enable_checkpointing"] = any(isinstance(callback, Checkpoint) for callback in callbacks)
    return settings


def untestable(trainer: Trainer, model: LightningModule, data: LightningDataModule) -> str | None:
    """Return why a fit can't be followed by a test; None if it can."""
    if trainer.barebones:
        return "trainer.barebones logs nothing"
    if not is_overridden("test_step", model):
        return f"{type(model).__name__} has no test_step"
    if not is_overridden("test_dataloader", data):
        return f"{type(data).__name__} has no test_dataloader"
    if searched_only(trainer):
        return "Nothing was to be trained"
    return None if getattr(data, "has_test", True) else "There is no test split"


def check_writer(trainer: Trainer, data: LightningDataModule) -> None:
    """Refuse a prediction that nobody would keep.

    Raises:
        UserError: If neither the data nor a callback writes it.
    """
    if not any(isinstance(callback, BasePredictionWriter) for callback in trainer.callbacks):  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            f"predict: {type(data).__name__} has no write_predictions, and trainer.callbacks no BasePredictionWriter; "
            "add one of them to keep what is predicted"
        )


def make_lighter(trainer: Trainer) -> None:
    """Make steps cheaper: callbacks without step hooks that do nothing, and memory that is kept on a CPU."""
    for callback in trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
        for hook in STEP_HOOKS:
            if getattr(type(callback), hook) is getattr(Callback, hook):
                setattr(callback, hook, None)  # Lightning skips what can't be called
    if trainer.strategy.root_device.type == "cpu":
        keep_freed_memory()
