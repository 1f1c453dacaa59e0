"""Logs that are on the disk before their checkpoint is, and CSV files that a resumed run goes on with."""

import csv
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from litlab.runs.folder import write_bytes
from litlab.util.atomic import sync

KEY = "csv_files"  # in the checkpoint: folder and number of rows of each


class DurableLogs(Callback):
    """Log, flush and sync all that belongs to a checkpoint before it is written.

    - Metrics of a training epoch: Lightning (2.6.6) logs them after the checkpoint of its end, and a run that is killed
      in between goes on with the next epoch.
    - Event files, CSV files and the config: a power cut loses what is not synced, and a resumed run does not log it
      again.
    """

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Log, flush and sync; every process calls this."""
        if trainer.state.fn != "fit":
            return
        _log_epoch(trainer)
        for logger in trainer.loggers:
            logger.save()
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                if isinstance(logger, (TensorBoardLogger, CSVLogger)) and Path(logger.log_dir).is_dir():
                    _sync(Path(logger.log_dir))
            files = [logger for logger in trainer.loggers if isinstance(logger, CSVLogger)]
            checkpoint[KEY] = [[os.path.abspath(logger.log_dir), _rows(logger)] for logger in files]


def go_on_with_csv_files(loggers: Iterable[Logger], checkpoint: dict[str, Any] | None, resumes: bool) -> None:
    """Lets CSV loggers go on with the files of a run, which Lightning's (2.6.6) would delete, or leave for new ones.

    Args:
        loggers: As they are built from the config.
        checkpoint: The one that the command goes on from, if any.
        resumes: Whether training goes on: rows that were logged after the checkpoint are dropped, they come again.
    """
    written = list((checkpoint or {}).get(KEY, []))
    for logger in loggers:
        if not isinstance(logger, CSVLogger):
            continue
        same = next((file for file in written if Path(file[0]).parent == Path(logger.root_dir).absolute()), None)
        if same is not None and (logger._version is None or Path(logger.log_dir).absolute() == Path(same[0])):
            written.remove(same)
            logger._version = Path(same[0]).name
            # There is no public way to give the logger another writer.
            logger._experiment = _GoingOn(logger.log_dir, same[1] if resumes else None)


class _GoingOn(ExperimentWriter):
    """Adds to the file that is there, behind so many of its rows, or all of them."""

    def __init__(self, log_dir: str, rows: int | None) -> None:
        self._kept = rows
        super().__init__(log_dir)

    def _check_log_dir_exists(self) -> None:  # Lightning's deletes the file
        path = Path(self.metrics_file_path)
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        if not lines:
            return
        self.metrics_keys = next(csv.reader([lines[0].decode()]))
        if self._kept is not None and len(lines) > self._kept + 1:
            write_bytes(path, b"".join(lines[: self._kept + 1]))


def _log_epoch(trainer: Trainer) -> None:
    """Logs the metrics of a training epoch that is at its end, so that Lightning won't a little later.

    Lightning has no hook between that and the checkpoint, hence its private names.
    """
    loop, connector = trainer.fit_loop, trainer._logger_connector
    progress: Any = loop.epoch_progress.current
    logged = "update_train_epoch_metrics" in vars(connector)  # by the checkpoint before: the best one, then the last
    if logged or not trainer.training or connector._first_loop_iter is not None:
        return
    if progress.processed == progress.completed:
        return
    metrics = dict(connector.metrics["log"])
    loop.epoch_loop._batches_that_stepped -= 1  # as Lightning does
    connector.log_metrics(metrics)
    loop.epoch_loop._batches_that_stepped += 1
    connector.update_train_epoch_metrics = partial(_log_rest, connector, set(metrics))


def _log_rest(connector: Any, logged: set[str]) -> None:
    """Takes the place of Lightning's logging of an epoch, once."""
    del connector.update_train_epoch_metrics
    connector.log_metrics({name: value for name, value in connector.metrics["log"].items() if name not in logged})
    connector.reset_results()


def _rows(logger: CSVLogger) -> int:
    path = Path(logger.experiment.metrics_file_path)
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0


def _sync(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        if path == folder or path.is_file():
            sync(path)
