"""What ``fit``, ``validate``, ``test`` and ``predict`` do, in the order in which it happens.

Each step is a function to step into or to put a breakpoint on; none is hidden in the hooks of a
framework.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import (
    Callback,
    LightningDataModule,
    LightningModule,
    Trainer,
    seed_everything,
)
from lightning.pytorch.callbacks import (
    BasePredictionWriter,
    Checkpoint,
    LearningRateMonitor,
    ModelSummary,
)
from lightning.pytorch.callbacks import ProgressBar as LightningProgressBar
from lightning.pytorch.utilities import rank_zero_info

from litlab.callbacks.memory import ChannelsLast, FreeGradients
from litlab.callbacks.progress import ProgressBar
from litlab.callbacks.reporting import check_files
from litlab.callbacks.summary import ModelTable, RunSummary
from litlab.checkpointing.internals import log_at_step, release_averages
from litlab.checkpointing.io import load_checkpoint
from litlab.checkpointing.resume import ExactResume, make_resumable
from litlab.cli.argv import has_flag
from litlab.cli.commands import import_command
from litlab.cli.config import Command
from litlab.cli.preflight import Preflight, check_used
from litlab.cli.trainer import (
    as_list,
    build_settings,
    check_trained,
    choose_checkpoint_io,
    explain_untestable,
    has_callback,
    lighten_steps,
    print_summary,
)
from litlab.errors import UserError, building
from litlab.runs.record import RunRecord
from litlab.runs.run import Run, saving_traceback
from litlab.runs.signals import StopSignals
from litlab.util.files import check_replaceable, record_digests


@dataclass
class Experiment:
    """What a command line describes, built and not run."""

    command: Command
    data: LightningDataModule
    model: LightningModule
    checkpoint: dict[str, Any] | None  # of --ckpt_path


def fit(argv: list[str]) -> int:
    """Train, then test the best checkpoint; return the exit code."""
    # One fit after the other, each in a process of its own
    if has_flag(argv, "--seeds", "--folds"):
        return import_command("--seeds")(argv[1:])

    command = Command(argv)  # runs and bases become flags, then all is parsed
    config = command.config
    sys.argv[1:] = command.line.pinned  # with which Lightning starts the other processes
    if config.plan is not None:
        import_command("--plan")(command)
        return 0

    experiment = build(command)
    data, model = experiment.data, experiment.model
    check_used(model)
    if config.check:
        import_command("--check")(build_trainer(experiment, None), model, data)
        return 0

    with Run.start(command) as run:
        if run.is_finished:
            return 0
        trainer = build_trainer(experiment, run)
        if config.ckpt_path is None:
            search_rate(trainer, model, data)  # only with an LRFinder: a training before it
        trainer.fit(model, data, ckpt_path=config.ckpt_path, weights_only=True)
        check_trained(trainer)
        test_best(trainer, experiment)
    print_summary(trainer)
    return 0


def evaluate(argv: list[str]) -> int:
    """Validate or test a checkpoint; the results go into its run."""
    command = Command(argv)
    sys.argv[1:] = command.line.pinned
    experiment = build(command)

    with Run.join(command) as run:
        trainer = build_trainer(experiment, run)
        run_verb = trainer.validate if command.verb == "validate" else trainer.test
        run_verb(
            experiment.model,
            experiment.data,
            ckpt_path=command.config.ckpt_path,
            weights_only=True,
            verbose=False,
        )
    print_summary(trainer)
    return 0


def predict(argv: list[str]) -> int:
    """Read ``--input``, predict and write ``--output``; or leave both to a callback."""
    command = Command(argv)
    config = command.config
    experiment = build(command)
    data: Any = experiment.data
    writes = hasattr(data, "write_predictions")
    output = choose_output(config) if writes else None
    data.predict_input = config.input

    with saving_traceback():
        trainer = build_trainer(experiment, None)
        callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        if not writes and not any(
            isinstance(callback, BasePredictionWriter) for callback in callbacks
        ):
            raise UserError(
                f"predict: {type(data).__name__} has no write_predictions, and trainer.callbacks "
                "no BasePredictionWriter; add one of them to keep what is predicted"
            )
        outputs = trainer.predict(
            experiment.model,
            data,
            return_predictions=writes,
            ckpt_path=config.ckpt_path,
            weights_only=True,
        )
        if output is not None:
            data.write_predictions(outputs, str(output))
            record_digests(output)
            rank_zero_info(f"Predictions: {output}")
    return 0


def build(command: Command) -> Experiment:
    """Build the data, the model with what it must know of the data, and load the checkpoint;
    nothing is run.

    Raises:
        UserError: If there is no checkpoint to evaluate, its weights don't fit the model, or a run
            is resumed with other settings than its own.
    """
    config = command.config
    path = config.ckpt_path
    if path is None and command.verb != "fit":
        raise UserError(
            f"{command.verb}: there are no weights to use; give --run RUN, or --ckpt_path FILE"
        )
    checkpoint = None if path is None else load_checkpoint(path, weights=command.verb != "fit")

    seed_everything(config.seed_everything, workers=True)
    data = command.build_data()
    command.fill_from_data(data)  # null settings of the model, such as num_classes
    if command.verb == "fit" and command.line.run is not None:
        from litlab.runs.changes import check_settings

        check_settings(command)
    model = command.build_model(trained=checkpoint is not None)

    if checkpoint is not None:
        from litlab.checkpointing.weights import check_weights

        check_weights(model, checkpoint)
    elif config.init_from is not None:
        from litlab.checkpointing.weights import initialise
        from litlab.runs.find import find_checkpoint

        config.init_from = str(find_checkpoint(config.init_from))  # as the run's config says it
        initialise(model, Path(config.init_from))
    return Experiment(command, data, model, checkpoint)


def build_trainer(experiment: Experiment, run: Run | None) -> Trainer:
    """Build the Trainer that the config describes.

    Args:
        experiment: What it is to train or evaluate.
        run: The run whose folder it writes into; None: it writes nothing.
    """
    checkpoint, verb = experiment.checkpoint, experiment.command.verb
    built, settings = build_settings(experiment, run)
    settings["callbacks"] = list_callbacks(
        built, settings, run, is_resumed=verb == "fit" and checkpoint is not None
    )
    if settings["enable_checkpointing"] is None:
        settings["enable_checkpointing"] = has_callback(settings["callbacks"], Checkpoint)

    with building("trainer"):
        trainer = experiment.command.trainer_class(**settings)
    # A validation writes no pictures.
    if run is not None and run.folder is not None and verb != "validate":
        check_files(trainer, run.folder.path)
    choose_checkpoint_io(trainer)
    lighten_steps(trainer)
    if checkpoint is not None and verb != "fit":  # where results belong in the curves of the run
        log_at_step(trainer, checkpoint.get("global_step", 0))
    return trainer


def list_callbacks(
    built: Namespace, settings: dict[str, Any], run: Run | None, is_resumed: bool
) -> list[Callback]:
    """Return all callbacks in the order in which they run; Lightning moves the checkpoints to the
    end.

    A progress bar or LearningRateMonitor in ``trainer.callbacks`` takes the place of litlab's.

    Args:
        built: The config, its sections built.
        settings: The Trainer's arguments.
        run: As of `build_trainer`.
        is_resumed: Whether a fit continues from a checkpoint.

    Raises:
        UserError: If two of them exclude each other, or one can't be resumed.
    """
    if built.ema is not None and built.swa is not None:
        raise UserError(
            "swa: ema averages the weights too, and one average can be kept; set ema or swa to null"
        )
    named = make_resumable(as_list(settings["callbacks"]), is_resumed)
    shows_rates = settings["logger"] and not has_callback(named, LearningRateMonitor)
    shows_progress = settings["enable_progress_bar"] is not False and not has_callback(
        named, LightningProgressBar
    )
    shows_model = settings["enable_model_summary"] is not False and not has_callback(
        named, ModelSummary
    )
    compiles = built.compile is not None and built.compile.mode is not None
    callbacks = [
        ChannelsLast() if built.channels_last else None,  # before an average copies the weights
        built.checkpoint,
        built.early_stopping,
        built.freeze,
        built.ema,
        built.swa,
        # The gradient: as it is, whether it is finite, clipped.
        built.grad_norms,
        built.nan_guard,
        built.agc,
        built.activation_checkpointing,
        built.compile if compiles else None,
        built.vram,
        LearningRateMonitor() if shows_rates else None,
        ProgressBar() if shows_progress else None,
        ModelTable() if shows_model else None,
        Preflight(),
        FreeGradients(),
        ExactResume(),
        RunRecord(run) if run is not None else None,
        StopSignals(),
        RunSummary(),
        *named,
    ]
    return [callback for callback in callbacks if callback is not None]


def search_rate(trainer: Trainer, model: LightningModule, data: LightningDataModule) -> None:
    """Search the learning rate, if the trainer has an LRFinder."""
    callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    # By name: where it is not used, it is not imported either
    classes = [kind.__name__ for callback in callbacks for kind in type(callback).mro()]
    if "LRFinder" in classes:
        from litlab.callbacks.lr_finder import find_learning_rate

        find_learning_rate(trainer, model, data)


def choose_output(config: Any) -> Path:
    """Return the file that ``predict`` writes; refuse one that would replace something else."""
    from litlab.data.predictions import check_output

    if not config.input:
        raise UserError("--input: it is not set; give a file or a folder")
    path = Path(config.output or Path(config.run or "", "predictions.csv")).expanduser()
    check_output(path)
    check_replaceable(path)
    return path


def test_best(trainer: Trainer, experiment: Experiment) -> None:
    """Test the best checkpoint of a fit, or the last weights where none was kept."""
    model, data = experiment.model, experiment.data
    if trainer.interrupted or not experiment.command.config.test_after_fit:
        return
    reason = explain_untestable(model, data)
    if reason is not None:
        rank_zero_info(f"{reason}: not tested")
        return
    release_averages(trainer)
    best = getattr(trainer.checkpoint_callback, "best_model_path", "")
    trainer.test(model, data, ckpt_path=best or None, weights_only=True, verbose=False)
