"""What ``fit`` does, in the order in which it happens.

Each step is a function to step into or to put a breakpoint on; none is hidden in the hooks of a
framework. `litlab.cli.evaluate` has the other verbs.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.utilities import rank_zero_info

from litlab.callbacks.gradients import FreeGradients
from litlab.callbacks.layout import ChannelsLast
from litlab.callbacks.summary import RunSummary
from litlab.checkpointing.io import load_checkpoint
from litlab.checkpointing.loops import release_averages
from litlab.checkpointing.resume import ExactResume
from litlab.checkpointing.weights import check_weights, initialise
from litlab.cli.argv import Flags
from litlab.cli.commands import import_command
from litlab.cli.config import Command
from litlab.cli.preflight import Preflight, check_used
from litlab.cli.trainer import (
    build_settings,
    check_trained,
    explain_untestable,
    finish_trainer,
    print_summary,
    search_learning_rate,
)
from litlab.cli.trust import list_modules
from litlab.errors import UserError
from litlab.runs.changes import check_settings
from litlab.runs.children import run_fit
from litlab.runs.find import all_runs, find_checkpoint
from litlab.runs.record import RunRecord
from litlab.runs.run import Run
from litlab.runs.signals import StopSignals


@dataclass
class Experiment:
    """What a command line describes, built and not run."""

    command: Command
    data: LightningDataModule
    model: LightningModule
    checkpoint: dict[str, Any] | None  # of --ckpt_path


def fit(argv: list[str]) -> int:
    """Train, then test the best checkpoint; return the exit code."""
    # The name of a run becomes its config and checkpoint, and bases become configs; all is parsed
    command = Command(argv)
    config = command.config
    sys.argv[1:] = command.line.pinned  # with which Lightning starts the other processes
    if config.seeds or config.folds:
        return fit_each(command)
    if config.plan is not None:
        import_command("--plan")(command)
        return 0

    # Seeds, opens the data, and builds the model for it
    experiment = build(command)
    data, model = experiment.data, experiment.model
    check_used(model)
    if config.check:
        import_command("--check")(build_trainer(experiment, None), model, data)
        return 0

    # Whatever ends this block, the run's folder says so: finished, stopped by a signal, or failed
    with Run.start(command) as run:
        if run.is_finished:
            return 0
        trainer = build_trainer(experiment, run)
        if experiment.checkpoint is None:
            search_learning_rate(trainer, model, data)  # with an LRFinder: it trains a copy
        trainer.fit(model, data, ckpt_path=config.ckpt_path, weights_only=True)
        check_trained(trainer)
        test_best(trainer, experiment)
    print_summary(trainer)
    return 0


def fit_each(command: Command) -> int:
    """Fit with each of ``--seeds``, or once for each of ``--folds``; print mean and spread.

    One fit runs after the other, each in a process of its own and with a run of its own. The same
    command goes on with what was stopped, and leaves out what is finished.
    """
    from litlab.runs.groups import RunGroup  # which most fits don't need

    group, shared = RunGroup(command), Flags(command.line.pinned[1:]).drop("--seeds", "--folds")
    with group.lock():
        for member in group.members:
            folder, flags = group.begin(member)
            code = run_fit(folder, [*shared, *flags], list_modules(command.line))
            if code > 128:
                group.stop(signum=code - 128)
                return code
            if code and not all_runs(folder):  # it was refused, as all others would be
                return code
        status = group.write_status("finished")
    group.print_table()
    return 0 if status == "finished" else 1


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

    # The files are opened here: null settings of the model, such as num_classes, are theirs
    data = command.build_data()
    command.fill_from_data(data)
    if command.verb == "fit" and command.line.run is not None:
        check_settings(command)
    model = command.build_model(trained=checkpoint is not None)

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
    sections, settings = build_settings(experiment, run)
    settings["callbacks"] = list_callbacks(sections, settings["callbacks"], run)
    return finish_trainer(experiment, settings, run)


def list_callbacks(sections: Namespace, named: list[Any], run: Run | None) -> list[Any]:
    """Return all callbacks in the order in which they run; Lightning moves checkpoints to the end.

    Args:
        sections: What the sections of the config configure; None where one is off.
        named: Those of ``trainer.callbacks``.
        run: As of `build_trainer`.
    """
    callbacks = [
        ChannelsLast() if sections.channels_last else None,  # before an average copies the weights
        sections.checkpoint,
        sections.early_stopping,
        sections.freeze,
        sections.ema,
        sections.swa,
        # The gradient: as it is, whether it is finite, clipped.
        sections.grad_norms,
        sections.nan_guard,
        sections.agc,
        sections.activation_checkpointing,
        sections.compile,
        sections.vram,
        # What is shown, unless one of `named` does
        sections.learning_rates,
        sections.progress,
        sections.model_table,
        Preflight(),
        FreeGradients(),
        ExactResume(),
        RunRecord(run) if run is not None else None,
        StopSignals(),
        RunSummary(),
        *named,
    ]
    return [callback for callback in callbacks if callback is not None]


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
