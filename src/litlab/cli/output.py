"""Files that a command writes where the user says: what may be replaced."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

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
        raise UserError("predict: --input is not set: give a file or a folder.")
    trainer = config["trainer"]
    limit = trainer["limit_predict_batches"]
    if isinstance(limit, int) or limit not in (None, 1.0) or trainer["fast_dev_run"]:  # 1.0 is all, 1 is one batch
        raise UserError("predict: trainer.limit_predict_batches or fast_dev_run would leave files out: unset it.")
    output = config["output"]
    return check_output(str(folder / "predictions.csv") if output is None else output, "predict: --output", config)


def check_output(name: str, setting: str, config: dict[str, Any]) -> Path:
    """Refuse a file that can't be written, or that would be lost, before any work is done. Nothing is left behind.

    Args:
        name: The file, as the user has given it. Its folders need not be there yet.
        setting: What it was given by, for messages.
        config: The settings of the command: no file that one of them names is written to.

    Returns:
        The file: there is none yet, or one of predictions that may be replaced.

    Raises:
        UserError: It is something else.
    """
    path = Path(os.path.expanduser(name))
    if not name.strip() or name.endswith("/") or path.name in ("", "..") or os.path.isdir(path):
        raise UserError(f"{setting} '{name}' is not a file name.")
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        status = None
    except (OSError, ValueError) as error:
        raise UserError(f"{setting} {name} can't be written: {getattr(error, 'strerror', error)}.") from error
    if status is not None and (what := _precious(path, status, config)):
        raise UserError(f"{setting} {name} {what}: choose another file.")
    real = Path(os.path.realpath(path))
    if (run := owner_of(real)) and (
        run.checkpoints in real.parents or real in (run.config, run.status, run.metrics, run.provenance)
    ):
        raise UserError(f"{setting} {name} is kept for the files of {run.name}: choose another file.")
    _check_folder(path, f"{setting} {name}")
    return path


def _precious(path: Path, status: os.stat_result, config: dict[str, Any]) -> str | None:
    """Why a file that is there must not be replaced."""
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
    try:
        return None if is_predictions(path) else "is there already and holds no predictions"
    except OSError as error:
        return f"is there already and can't be read ({error.strerror})"


def _check_folder(path: Path, what: str) -> None:
    """Refuse a file whose folder can't be made or written to."""
    folder = next(folder for folder in path.parents if os.path.lexists(folder))
    if not folder.is_dir():
        raise UserError(f"{what} can't be written: {folder} is not a folder.")
    if not folder.stat().st_mode & 0o222:  # root has access to all folders
        raise UserError(f"{what} can't be written: the folder {folder} is read-only.")
    try:
        longest = os.pathconf(folder, "PC_NAME_MAX")
        for part in path.relative_to(folder).parts:
            if len(os.fsencode(part)) > longest:
                raise UserError(f"{what} can't be written: a name has more than {longest} bytes.")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(f"{what} can't be written: {folder}: {error.strerror}.") from error
