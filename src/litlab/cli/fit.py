"""What ``fit`` does, in the order in which it happens; `litlab.cli.evaluate` has the other verbs.

Each step is a function to step into or to put a breakpoint on.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything

from litlab.callbacks.memory import ChannelsLast, FreeGradients
from litlab.callbacks.summary import RunSummary
from litlab.checkpointing.io import load_checkpoint
from litlab.checkpointing.loops import release_averages
from litlab.checkpointing.resume import ExactResume
from litlab.checkpointing.weights import check_weights, initialise
from litlab.cli import trainer as trainer_parts
from litlab.cli.argv import Flags
from litlab.cli.commands import import_command
from litlab.cli.config import Command
from litlab.cli.preflight import Preflight, refuse_unused_settings
from litlab.cli.trust import list_modules
from litlab.errors import UserError
from litlab.runs.changes import check_settings
from litlab.runs.find import find_checkpoint, list_runs
from litlab.runs.record import RunRecord
from litlab.runs.run import Run
from litlab.runs.signals import StopSignals


@dataclass
class Experiment:
    """What a command line describes, built and not run."""

    command: Command
    data: LightningDataModule
    model: LightningModule
    checkpoint: dict[str, Any] | None  # what --ckpt_path holds: of --resume, the run's last one


def fit(argv: list[str]) -> int:
    """Train, then test the best checkpoint; return the exit code."""
    # --resume NAME is the run's config and --ckpt_path; a config's bases are merged; all is parsed
    command = Command(argv)
    config = command.config
    sys.argv[1:] = command.line.pinned  # other processes parse it again: a folder, not "last"
    if config.seeds or config.folds:
        return fit_each(command)
    if config.plan is not None:
        import_command("--plan")(command)
        return 0

    experiment = build_experiment(command)
    data, model = experiment.data, experiment.model
    refuse_unused_settings(model)
    if config.check:
        import_command("--check")(build_trainer(experiment, run=None), model, data)
        return 0

    # Whatever ends this block, the run's folder says so: finished, failed where, or stopped by a
    # signal, which raises SystemExit(128 + its number)
    with Run.start(command) as run:
        if run.is_finished:  # of --resume; it has said so
            return 0
        trainer = build_trainer(experiment, run)
        if experiment.checkpoint is None:
            trainer_parts.search_learning_rate(trainer, model, data)  # with an LRFinder, on a copy
        # The checkpoint restores optimizers and loops, too; it is unpickled as weights_only
        trainer.fit(model, data, ckpt_path=config.ckpt_path, weights_only=True)
        trainer_parts.check_trained(trainer)
        test_after_fit(trainer, experiment)
    trainer_parts.print_summary(trainer)
    return 0


def fit_each(command: Command) -> int:
    """Fit with each of ``--seeds`` or ``--folds``, one after the other, each in a process and a run
    of its own; print mean and spread. The same command goes on with what was stopped.
    """
    from litlab.runs.children import run_fit  # here, as most fits don't need them
    from litlab.runs.groups import RunGroup

    group = RunGroup(command)
    shared_flags = Flags(command.line.pinned[1:]).drop("--seeds", "--folds")
    with group.folder.lock():
        for member in group.members:
            folder, flags = group.begin(member)
            code = run_fit(folder, [*shared_flags, *flags], list_modules(command.line))
            if code > 128:  # by a signal
                group.stop(signum=code - 128)
                return code
            if code and not list_runs(folder):  # refused before it began; so would be the others
                return code
        status = group.write_status("finished")
    group.print_results()
    return 0 if status == "finished" else 1


def build_experiment(command: Command) -> Experiment:
    """Seed, open the data, build the model for it, and load the checkpoint; nothing is trained.

    Raises:
        UserError: If there is no checkpoint to evaluate, its weights don't fit the model, or a run
            is resumed with other settings than its own.
    """
    config, is_fit, checkpoint = command.config, command.verb == "fit", None
    if config.ckpt_path is not None:  # the shards of a sharded one are read by the fit itself
        checkpoint = load_checkpoint(config.ckpt_path, weights=not is_fit)
    elif not is_fit:
        raise UserError(
            f"{command.verb}: there are no weights to use; give --run RUN, or --ckpt_path FILE"
        )
    seed_everything(config.seed_everything, workers=True)

    # The data opens its files, and says what the model must know: settings of the model that are
    # null, such as num_classes, get the data's value
    data = command.build_data()
    command.fill_from_data(data)
    if is_fit and command.line.run is not None:
        check_settings(command)  # a resumed run keeps its own
    model = command.build_model(load_pretrained=checkpoint is None)

    if checkpoint is not None:
        check_weights(model, checkpoint)
    elif config.init_from is not None:
        config.init_from = str(find_checkpoint(config.init_from))  # as the run's config says it
        initialise(model, Path(config.init_from))
    return Experiment(command, data, model, checkpoint)


def build_trainer(experiment: Experiment, run: Run | None) -> Trainer:
    """Build the Trainer that the config describes.

    Args:
        experiment: What it is to train or evaluate.
        run: The run whose folder it writes into; None: it writes nothing.
    """
    configured, settings = trainer_parts.build_settings(experiment, run)
    settings["callbacks"] = list_callbacks(configured, settings["callbacks"], run)
    return trainer_parts.finish_trainer(experiment, settings, run)


def list_callbacks(configured: Namespace, named: list[Any], run: Run | None) -> list[Any]:
    """Return all callbacks in the order in which they run; Lightning moves checkpoints to the end.

    Args:
        configured: Those of the config's sections, such as ``ema``; None where one is off.
        named: Those that ``trainer.callbacks`` names.
        run: As of `build_trainer`.
    """
    callbacks = [
        Preflight(),  # settings against the data, before anything else sees them
        ChannelsLast() if configured.channels_last else None,  # before an average copies weights
        configured.checkpoint,
        configured.early_stopping,
        configured.freeze,
        configured.ema,
        configured.swa,
        # The gradient: as it is, whether it is finite, clipped
        configured.grad_norms,
        configured.nan_guard,
        configured.agc,
        configured.activation_checkpointing,
        configured.compile,
        # What is shown, unless one of `named` shows it
        configured.vram,
        configured.learning_rates,
        configured.progress,
        configured.model_table,
        # Always
        FreeGradients(),  # before each forward pass
        ExactResume(),  # random numbers, metrics and loops in checkpoints
        RunRecord(run) if run is not None else None,  # metrics.json
        StopSignals(),  # SIGTERM and Ctrl-C: after the step, with a checkpoint
        RunSummary(),
        *named,
    ]
    return [callback for callback in callbacks if callback is not None]


def test_after_fit(trainer: Trainer, experiment: Experiment) -> None:
    """Test the best checkpoint of a fit, or the last weights where none was kept."""
    is_wanted = experiment.command.config.test_after_fit and not trainer.interrupted
    if is_wanted and trainer_parts.is_testable(experiment.model, experiment.data):
        release_averages(trainer)  # of Lightning's WeightAveraging, which would be tested instead
        best = getattr(trainer.checkpoint_callback, "best_model_path", "") or None
        trainer.test(experiment.model, experiment.data, best, verbose=False, weights_only=True)
