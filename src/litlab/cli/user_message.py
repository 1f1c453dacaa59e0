"""One line for what reaches the command line and the user can put right; a bug keeps its traceback."""

import errno
import re
from pathlib import Path

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import Profiler

from litlab.errors import UserError, first_line
from litlab.util.nearest import nearest
from litlab.util.refusals import ABOUT_VALUES, frames_of, in_library, reason
from litlab.util.team import is_own

HERE = Path(__file__).parent
NOT_BUGS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EISDIR,
    errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ENXIO,
)  # fmt: skip
CALLERS = ([f"{HERE}/experiment_cli.py"], [f"{HERE.with_name('preflight')}/check.py"])  # what calls the Trainer
PART_OF_TRAINER = {Callback: "trainer.callbacks", Logger: "trainer.logger", Profiler: "trainer.profiler"}


def user_message(error: BaseException) -> str | None:
    """The one line to print for an exception that the user can put right.

    Args:
        error: What reached the command line.

    Returns:
        The line, or None for a bug, which keeps its traceback.
    """
    if isinstance(error, UserError):
        return str(error)

    cause: BaseException | None = error.__cause__
    while cause is not None:  # jsonargparse wraps what a constructor raises
        if isinstance(cause, (UserError, MisconfigurationException)):
            return first_line(cause)
        cause = cause.__cause__
    text = " ".join(str(error).split())
    if found := re.search(
        r"Early stopping conditioned on metric `([^`]+)` which is not available.*following: (.*)", text
    ):
        return _unknown_metric("early_stopping", found[1], re.findall(r"`([^`]+)`", found[2]))
    if found := re.search(r"ModelCheckpoint\(monitor='([^']+)'\)` could not find .*metrics: \[(.*)\]", text):
        return _unknown_metric("checkpoint", found[1], re.findall(r"'([^']+)'", found[2]))
    if found := re.search(r"ReduceLROnPlateau conditioned on metric (\S+) which is not available.*are: \[(.*)\]", text):
        return _unknown_metric("model.schedule", found[1], re.findall(r"'([^']+)'", found[2]))
    if isinstance(error, MisconfigurationException):  # Lightning's word for settings that don't go together
        return f"trainer: {first_line(error)}"
    if isinstance(error, OSError) and (line := _file_error(error)):
        return line
    return _refused_in_training(error)


def _refused_in_training(error: BaseException) -> str | None:
    """The line for what Lightning, or an optimizer, callback, logger or the like of a library says while a run goes on.

    Returns:
        The line; None where the project's own code, or the model's computation, has to do with it.
    """
    frames = list(frames_of(error))
    if not frames or not in_library(frames[-1][0]):
        return None
    last, variables = frames[-1]
    if "/torch/optim/" in last.co_filename:
        key = "model.schedule" if last.co_filename.endswith("lr_scheduler.py") else "model.optimizer"
        owner = type(variables["self"]).__name__ + ": " if "self" in variables else ""
        return f"{key}: {owner}{reason(error)}"
    for number, (code, variables) in enumerate(frames):
        owner = variables.get("self")
        key = next((key for base, key in PART_OF_TRAINER.items() if isinstance(owner, base)), None)
        if key is None or is_own(type(owner).__module__):
            continue
        below = [code for code, _ in frames[number:]]
        if all(in_library(code) and "/lightning/pytorch/loops/" not in code.co_filename for code in below):
            return f"{key}: {type(owner).__name__}: {reason(error)}"
    if any(code.co_name == "setup_environment" for code, _ in frames):
        return f"trainer.strategy: the processes can't be brought together: {reason(error)}"
    ours = [code.co_filename for code, _ in frames if not in_library(code)]
    of_trainer = ours[-1:] in CALLERS or any(code.co_name == "estimated_stepping_batches" for code, _ in frames)
    if of_trainer and "/lightning/" in last.co_filename and isinstance(error, ABOUT_VALUES):
        return f"trainer: {reason(error)}"
    return None


def _file_error(error: OSError) -> str | None:
    """Path and reason of a file that can't be used; None for one that is only not there, and for what is not a file."""
    if error.errno not in NOT_BUGS:
        return None
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror}."


def _unknown_metric(section: str, name: str, logged: list[str]) -> str:
    if name.startswith("val/") and not any(metric.startswith("val/") for metric in logged):
        return (
            f"{section}.monitor: '{name}' is not logged, as nothing was validated: set data.val_fraction above 0 "
            f"(for series the second share of data.split; and trainer.limit_val_batches), or {section}: null."
        )
    hint = nearest(name, logged, f": logged are {', '.join(sorted(logged))}.")
    return f"{section}.monitor: no metric '{name}' is logged{hint}"
