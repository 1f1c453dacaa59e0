"""Loggers get the settings of a run, and go on with what they have begun: the run of W&B, MLflow or
Comet.
"""

from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger

from litlab.runs.folder import RunFolder, read_json, write_json

# The argument that names a run of the service, by class of the logger.
IDS = {"WandbLogger": "id", "MLFlowLogger": "run_id", "CometLogger": "experiment_key"}


def save_logger_ids(loggers: list[Any], run: RunFolder) -> None:
    """Write what identifies the runs of the loggers, once they have begun."""
    # Of two loggers of one class the last one counts: a class has one id
    names = {type(logger).__name__: logger for logger in loggers}
    ids = {name: logger.version for name, logger in names.items() if name in IDS}
    if ids:
        write_json(run.path / "loggers.json", ids)


def resume_loggers(loggers: list[Any], run: RunFolder) -> None:
    """Set the arguments of a config's loggers that let each go on with its run.

    Args:
        loggers: Each a class path with its arguments. They are changed.
        run: The run that is resumed or evaluated.
    """
    ids = read_json(run.path / "loggers.json")
    for logger in loggers:
        # In its settings: the logger itself is not built yet
        name = logger["class_path"].rpartition(".")[2]
        if name in ids:
            logger["init_args"][IDS[name]] = ids[name]


def log_settings(trainer: Trainer, settings: dict[str, Any]) -> None:
    """Send the settings of a run to every logger.

    Args:
        trainer: The trainer whose loggers get them.
        settings: Plain values by dotted name.
    """
    for logger in trainer.loggers:
        new = dict(settings)
        # MLflow refuses to change a value, and a resumed run may train for longer.
        if isinstance(logger, MLFlowLogger):
            run = logger.experiment.get_run(str(logger.run_id)).to_dictionary()
            for name in run["data"]["params"]:
                new.pop(name, None)
        logger.log_hyperparams(new)  # pyright: ignore[reportArgumentType]


def log_results(trainer: Trainer, settings: dict[str, Any], results: dict[str, float]) -> None:
    """Give TensorBoard's HPARAMS tab the settings and results of a run that has ended.

    Args:
        trainer: The trainer with the loggers.
        settings: As of `log_settings`.
        results: The metrics that `runs` shows, by name.
    """
    tagged = {f"hp/{name}": value for name, value in results.items()}
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            # Once more, as Lightning shows nothing in the tab before there are results
            logger.log_hyperparams(settings, tagged, step=trainer.global_step)
            logger.finalize("success")
