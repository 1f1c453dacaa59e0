"""Loggers of a resumed run go on with what they have begun: the run of W&B, MLflow or Comet, the file of CSVLogger."""

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger

from litlab.runs.folder import RunFolder, get_entry, read_json, write_json

# By class: the argument that lets a logger go on.
IDS = {"WandbLogger": "id", "MLFlowLogger": "run_id", "CometLogger": "experiment_key", "CSVLogger": "version"}
FILE = "loggers.json"


def save_logger_ids(loggers: Sequence[Logger], run: RunFolder) -> None:
    """Write what identifies the runs of the loggers, once they have begun."""
    ids: dict[str, list[Any]] = defaultdict(list)
    for logger in loggers:
        if type(logger).__name__ in IDS:
            ids[type(logger).__name__].append(logger.version)
    if ids:
        write_json(run.path / FILE, ids)


def resume_loggers(loggers: Any, run: RunFolder) -> Any:
    """Return ``trainer.logger`` of a config with the arguments that let each logger go on with its run.

    Args:
        loggers: What the config has: a class with its arguments, a list of them, or a bool or None.
        run: The run that is resumed or evaluated.
    """
    known = read_json(run.path / FILE)
    loggers = deepcopy(loggers)
    named = [] if loggers is None or isinstance(loggers, bool) else loggers if isinstance(loggers, list) else [loggers]
    for logger in named:
        name = logger["class_path"].rpartition(".")[2]
        ids = get_entry(known, list, name)
        if ids:
            logger["init_args"][IDS[name]] = ids.pop(0)
    return loggers


def keep_csv_rows(loggers: Sequence[Logger], first_step: float = math.inf) -> None:
    """Let each CSVLogger append to its file, which Lightning (2.6) would delete.

    Args:
        loggers: The loggers, as they are built.
        first_step: Rows from this step on are dropped, as they come again.
    """
    for logger in loggers:
        file = Path(str(logger.log_dir)) / "metrics.csv"
        if not isinstance(logger, CSVLogger) or not file.is_file():
            continue
        header, *rows = file.read_text(encoding="utf-8").splitlines()
        names = header.split(",")
        rows = [row for row in rows if int(row.split(",")[names.index("step")]) < first_step]
        with warnings.catch_warnings(action="ignore"):  # that it deletes the file
            logger.experiment.metrics_keys = names
        file.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
