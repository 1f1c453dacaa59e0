"""Logs are on the disk before the checkpoint they belong to, and a resumed run appends to its CSV files."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from litlab.checkpointing.internals import append_to_csv_file, log_epoch_metrics
from litlab.runs.folder import write_bytes
from litlab.util.files import sync

KEY = "csv_files"  # in the checkpoint: folder and number of lines of each


class DurableLogs(Callback):
    """Log, flush and sync all that belongs to a checkpoint before it is written.

    - Metrics of a training epoch: Lightning (2.6.6) logs them after the checkpoint of its end, and a run that is killed
      in between continues with the next epoch.
    - Event files, CSV files and the config: a power cut loses what is not synced, and a resumed run does not log it
      again.
    """

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Log, flush and sync; every process calls this."""
        if trainer.state.fn != "fit":
            return
        log_epoch_metrics(trainer)
        for logger in trainer.loggers:
            logger.save()
        if trainer.is_global_zero:
            for folder in {Path(f.log_dir) for f in trainer.loggers if isinstance(f, TensorBoardLogger | CSVLogger)}:
                for path in [*folder.iterdir(), folder] if folder.is_dir() else []:
                    if path == folder or path.is_file():
                        sync(path)
            files = [Path(logger.log_dir) for logger in trainer.loggers if isinstance(logger, CSVLogger)]
            checkpoint[KEY] = [[os.path.abspath(folder), len(_lines(folder))] for folder in files]


def append_to_csv_files(loggers: Iterable[Logger], checkpoint: dict[str, Any] | None, resumes: bool) -> None:
    """Let CSV loggers append to the files of a run, which Lightning's (2.6.6) would delete, or leave for new ones.

    Args:
        loggers: The loggers, as they are built from the config.
        checkpoint: The one that the command starts from, if any.
        resumes: Whether training continues: rows that were logged after the checkpoint are dropped, as they come again.
    """
    written = [(Path(folder), lines) for folder, lines in (checkpoint or {}).get(KEY, [])]
    for logger in loggers:
        if not isinstance(logger, CSVLogger):
            continue
        file = next((file for file in written if file[0].parent == Path(logger.root_dir).absolute()), None)
        if file is not None and append_to_csv_file(logger, file[0]):
            written.remove(file)
            if resumes and len(lines := _lines(file[0])) > file[1]:
                write_bytes(file[0] / ExperimentWriter.NAME_METRICS_FILE, b"".join(lines[: file[1]]))


def _lines(folder: Path) -> list[bytes]:
    path = folder / ExperimentWriter.NAME_METRICS_FILE
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []
