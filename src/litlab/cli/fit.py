"""What ``fit``, ``validate``, ``test`` and ``predict`` do, in the order in which it happens.

Each step is a function to step into or to put a breakpoint on; none is hidden in the hooks of a framework.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.utilities import rank_zero_info

from litlab.checkpointing.internals import release_averages
from litlab.checkpointing.io import load_checkpoint
from litlab.checkpointing.weights import check_weights, initialise
from litlab.cli.commands import import_command
from litlab.cli.config import Command
from litlab.cli.messages import saving_traceback
from litlab.cli.preflight import check_used
from litlab.cli.trainer import build_trainer, check_trained, explain_untestable, print_summary
from litlab.errors import UserError
from litlab.runs.find import find_checkpoint
from litlab.runs.record import log_results
from litlab.runs.start import choose_run, is_finished, start_run


@dataclass
class Experiment:
    """What a command line describes, built and not run."""

    command: Command
    data: LightningDataModule
    model: LightningModule
    checkpoint: dict[str, Any] | None  # of --ckpt_path


def fit(argv: list[str]) -> None:
    """Train, then test the best checkpoint."""
    command = Command(argv)  # runs and bases become flags, then all is parsed, once
    config = command.config
    if config.plan is not None:
        import_command("--plan")(command)
        return

    experiment = build(command)
    data, model = experiment.data, experiment.model
    check_used(model)
    if config.check:
        import_command("--check")(build_trainer(experiment, None), model, data)
        return
    if config.resume is not None and is_finished(command):
        return

    with start_run(config) as run, saving_traceback(run):
        trainer = build_trainer(experiment, run)
        trainer.fit(model, data, ckpt_path=config.ckpt_path, weights_only=True)
        check_trained(trainer)
        test_best(trainer, experiment)
        log_results(trainer)
        print_summary(trainer)


def evaluate(argv: list[str]) -> None:
    """Validate or test a checkpoint; the results go into its run."""
    command = Command(argv)
    experiment = build(command)
    run = choose_run(command)

    with saving_traceback(run):
        trainer = build_trainer(experiment, run)
        run_verb = trainer.validate if command.verb == "validate" else trainer.test
        run_verb(
            experiment.model, experiment.data, ckpt_path=command.config.ckpt_path, weights_only=True, verbose=False
        )
        print_summary(trainer)


def predict(argv: list[str]) -> None:
    """Read ``--input``, predict and write ``--output``; or leave both to a callback."""
    command = Command(argv)
    config = command.config
    experiment = build(command)
    data: Any = experiment.data
    writes = hasattr(data, "write_predictions")
    output = choose_output(config) if writes else None
    data.predict_input = config.input

    with saving_traceback(None):
        trainer = build_trainer(experiment, None)
        callbacks: Any = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        if not writes and not any(isinstance(callback, BasePredictionWriter) for callback in callbacks):
            raise UserError(
                f"predict: {type(data).__name__} has no write_predictions, and trainer.callbacks no "
                "BasePredictionWriter; add one of them to keep what is predicted"
            )
        outputs = trainer.predict(
            experiment.model, data, return_predictions=writes, ckpt_path=config.ckpt_path, weights_only=True
        )
        if writes:
            data.write_predictions(outputs, str(output))
            rank_zero_info(f"Predictions: {output}")


def build(command: Command) -> Experiment:
    """Build the data, the model with what it must know of the data, and load the checkpoint; nothing is run.

    Raises:
        UserError: If there is no checkpoint to evaluate, or its weights don't fit the model.
    """
    config = command.config
    path = config.ckpt_path
    if path is None and command.verb != "fit":
        raise UserError(f"{command.verb}: there are no weights to use; give --run RUN, or --ckpt_path FILE")
    checkpoint = None if path is None else load_checkpoint(path, weights=command.verb != "fit")

    data = command.build_data()
    command.fill_from_data(data)  # null settings of the model, such as num_classes
    model = command.build_model(trained=checkpoint is not None)

    if checkpoint is not None:
        check_weights(model, checkpoint)
    elif config.init_from is not None:
        config.init_from = str(find_checkpoint(config.init_from))  # as the run's config says it
        initialise(model, Path(config.init_from))
    return Experiment(command, data, model, checkpoint)


def choose_output(config: Any) -> Path:
    """Return the file that ``predict`` writes; refuse one that would replace something else."""
    from litlab.data.predictions import check_output, is_predictions

    if not config.input:
        raise UserError("--input: it is not set; give a file or a folder")
    path = Path(config.output or Path(config.run or "", "predictions.csv")).expanduser()
    check_output(path)
    if path.is_symlink() or (path.exists() and not (path.is_file() and is_predictions(path))):
        raise UserError(f"--output: {path} exists and does not hold predictions; choose another file")
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
