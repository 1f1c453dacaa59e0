"""The file that a command writes where the user says: what may be replaced."""

import os
import stat
from pathlib import Path
from typing import Any

from litlab.cli.environment import check_folder, check_names
from litlab.data.table import is_predictions
from litlab.errors import UserError
from litlab.runs.compare import flat_config
from litlab.runs.find import owner_of


def check_prediction(config: dict[str, Any], folder: Path) -> Path:
    """Refuse a prediction without input or place to write, before anything is built.

    Args:
        config: The settings of ``predict``.
        folder: Where the predictions go if ``--output`` is not given.

    Returns:
        The file to write.

    Raises:
        UserError: There is no input, not all of it would be predicted, or the file can't be written.
    """
    if not config["input"]:
        raise UserError("--input: it is not set; give a file or a folder")
    trainer = config["trainer"]
    limit = trainer["limit_predict_batches"]
    if isinstance(limit, int) or limit not in (None, 1.0) or trainer["fast_dev_run"]:  # 1.0 is all, 1 is one batch
        name = "fast_dev_run" if trainer["fast_dev_run"] else "limit_predict_batches"
        raise UserError(f"trainer.{name}: it would leave some of the input out; unset it")
    output = config["output"]
    return check_output(str(folder / "predictions.csv") if output is None else output, config)


def check_output(name: str, config: dict[str, Any]) -> Path:
    """Refuse a file that can't be written, or that would be lost, before any work is done. Nothing is left behind.

    Args:
        name: The file, as the user has given it. Its folders need not exist yet.
        config: The settings of the command: no file that one of them names is overwritten.

    Returns:
        The file: a new one, or one of predictions that may be replaced.

    Raises:
        UserError: It is something else.
    """
    path = Path(os.path.expanduser(name))
    if not name.strip() or name.endswith("/") or path.name in ("", "..") or os.path.isdir(path):
        raise UserError(f"--output: {name!r} is not a file name; choose another file")
    check_names("--output", path)
    try:
        problem = _reason_to_keep(path, config) or _run_of(path)
    except OSError as error:
        problem = f"can't be written ({error.strerror})"
    if problem:
        raise UserError(f"--output: {name} {problem}; choose another file")
    check_folder("--output", path.parent)
    return path


def _reason_to_keep(path: Path, config: dict[str, Any]) -> str | None:
    """Return why a file that exists must not be replaced."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is a pipe or a device, not a file"
    for key, value in flat_config(config).items():
        for text in value if isinstance(value, list) else [value]:
            if key != "output" and isinstance(text, str) and os.path.isfile(text) and os.path.samefile(text, path):
                return f"is the file that {key} names"
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):  # root has access to all files
        return "is read-only"
    return None if is_predictions(path) else "exists already and does not hold predictions"


def _run_of(path: Path) -> str | None:
    """Return why a file would be among those of a run."""
    real = Path(os.path.realpath(path))
    run = owner_of(real)
    if run and (run.checkpoints in real.parents or real in (run.config, run.status, run.metrics, run.provenance)):
        return f"is kept for the files of {run.name}"
    return None
