"""Send loggers more than numbers: settings, pictures, tables and the config, to each what it can take.

A logger takes pictures and tables if it has W&B's methods ``log_image`` and ``log_table``, which a logger of your own
may have too, or if it has MLflow's ``run_id`` and client. TensorBoard and Comet have their own ways. CSVLogger gets the
settings only.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CometLogger, MLFlowLogger, TensorBoardLogger
from lightning.pytorch.loggers.logger import DummyLogger

if TYPE_CHECKING:
    import numpy as np

LONGEST = 100  # rows of a table in TensorBoard, which shows it as one text


def log_settings(trainer: Trainer, settings: Mapping[str, Any]) -> None:
    """Send the settings of a run to every logger. Call it on rank zero, like all of this module.

    Args:
        trainer: The trainer whose loggers get them.
        settings: Plain values by dotted name.
    """
    for logger in trainer.loggers:
        new = settings
        if isinstance(logger, MLFlowLogger):  # it refuses to change a value, and a resumed run may train for longer
            run = logger.experiment.get_run(str(logger.run_id))
            known = run.to_dictionary()["data"]["params"]
            new = {name: value for name, value in settings.items() if name not in known}
        logger.log_hyperparams(dict(new))  # pyright: ignore[reportArgumentType]


def takes_images(trainer: Trainer) -> bool:
    """Whether any logger takes pictures."""
    return any(
        isinstance(logger, TensorBoardLogger | CometLogger) or _is_mlflow(logger) or _can(logger, "log_image")
        for logger in _real(trainer)
    )


def log_image(trainer: Trainer, name: str, pixels: "np.ndarray") -> None:
    """Send a picture to every logger that takes pictures.

    Args:
        trainer: The trainer whose loggers get it.
        name: Such as ``test/confusion_matrix``.
        pixels: uint8 of shape (height, width, 3).
    """
    step = trainer.global_step
    for logger in _real(trainer):
        if _can(logger, "log_image"):
            logger.log_image(key=name, images=[pixels], step=step)
        elif _is_mlflow(logger):
            logger.experiment.log_image(logger.run_id, pixels, f"{name}.png")
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_image(name, pixels, step, dataformats="HWC")
        elif isinstance(logger, CometLogger):
            logger.experiment.log_image(pixels, name=name, step=step)


def log_table(trainer: Trainer, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]], text: str) -> None:
    """Send a table to every logger that takes tables or texts.

    Args:
        trainer: The trainer whose loggers get it.
        name: Such as ``test/texts``.
        header: Names of the columns.
        rows: Their values.
        text: The table in Markdown, for loggers that take texts. TensorBoard gets none of a long table.
    """
    step = trainer.global_step
    cells = [list(row) for row in rows]
    for logger in _real(trainer):
        if _can(logger, "log_table"):
            logger.log_table(key=name, columns=list(header), data=cells, step=step)
        elif _is_mlflow(logger):
            logger.experiment.log_text(logger.run_id, text, f"{name}.md")
        elif isinstance(logger, TensorBoardLogger) and len(rows) <= LONGEST:
            logger.experiment.add_text(name, text, step)
        elif isinstance(logger, CometLogger):
            logger.experiment.log_table(f"{name}.csv", cells, headers=list(header))


def log_file(trainer: Trainer, name: str, text: str) -> None:
    """Send a text file to every logger that keeps files: as an artifact of W&B and MLflow, as an asset of Comet.

    Args:
        trainer: The trainer whose loggers get it.
        name: Its name, such as ``config.yaml``.
        text: What it holds.
    """
    with tempfile.TemporaryDirectory() as folder:  # the loggers copy the file before they return
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        for logger in _real(trainer):
            if isinstance(logger, CometLogger):
                logger.experiment.log_asset_data(text, name=name)
            elif not _can(logger.experiment, "log_artifact"):
                continue
            elif _is_mlflow(logger):
                logger.experiment.log_artifact(logger.run_id, str(path))
            else:
                logger.experiment.log_artifact(str(path), name=f"{path.stem}-{logger.version}", type=path.stem)


def _real(trainer: Trainer) -> list[Any]:
    """Return the loggers, but not the stand-in of ``fast_dev_run``, which has every method."""
    return [logger for logger in trainer.loggers if not isinstance(logger, DummyLogger)]


def _is_mlflow(logger: Any) -> bool:
    return hasattr(logger, "run_id")


def _can(owner: Any, method: str) -> bool:
    return callable(getattr(owner, method, None))
