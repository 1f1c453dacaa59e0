"""Where callbacks put the files they write, and tables among them."""

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from lightning.pytorch import Trainer


def run_folder(trainer: Trainer) -> Path | None:
    """Return the folder of this run, the first logger's, made if need be; ``None`` for a run that keeps no folder.

    Without a logger, or under ``fast_dev_run``, there is no folder of the run's own, and nothing may be left in the
    working directory, which is what ``trainer.log_dir`` would then answer. Call it on every rank: the ranks agree on
    the folder by a broadcast.
    """
    if not trainer.loggers:
        return None
    log_dir = trainer.log_dir
    if log_dir is None:  # the stand-in logger of fast_dev_run
        return None
    folder = Path(log_dir)
    if trainer.is_global_zero:
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file.

    Args:
        path: The file; one that is there is replaced.
        header: Names of the columns.
        rows: Their values. Numbers that are no whole ones get six significant digits, those that are unknown (NaN) an
            empty field.
    """
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows([_field(value) for value in row] for row in rows)


def _field(value: object) -> object:
    if not isinstance(value, float):
        return value
    return "" if math.isnan(value) else f"{value:.6g}"
