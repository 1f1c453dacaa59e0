"""One line for what reaches the command line and the user can put right. A bug keeps its traceback."""

import errno
import re
from pathlib import Path

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import Profiler

from litlab.callbacks.graph_breaks import fullgraph_advice
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
UNKNOWN_METRICS = {  # section that monitors it: how Lightning says so, and how it quotes the names of those that exist
    "early_stopping": (r"Early stopping conditioned on metric `([^`]+)` which is not available.*following: (.*)", "`"),
    "checkpoint": (r"ModelCheckpoint\(monitor='([^']+)'\)` could not find .*metrics: \[(.*)\]", "'"),
    "model.schedule": (r"ReduceLROnPlateau conditioned on metric (\S+) which is not available.*are: \[(.*)\]", "'"),
}


def user_message(error: BaseException) -> str | None:
    """Return the line to print for an exception that the user can put right.

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
    if (advice := fullgraph_advice(error)) is not None:
        return advice
    text = " ".join(str(error).split())
    for section, (pattern, quote) in UNKNOWN_METRICS.items():
        if found := re.search(pattern, text):
            logged = re.findall(f"{quote}([^{quote}]+){quote}", found[2])
            return _unvalidated(error, section, found[1]) or _unknown_metric(section, found[1], logged)
    if isinstance(error, MisconfigurationException):  # Lightning's word for settings that do not go together
        return f"trainer: {first_line(error)}"
    if isinstance(error, OSError) and error.errno in NOT_BUGS:  # a file that does not exist is more likely a bug
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return _refused_in_training(error)


def _refused_in_training(error: BaseException) -> str | None:
    """Return the line for what a library's optimizer, callback, logger or the like says during a run.

    Returns:
        The line; None where code of one's own, or the model's computation, has to do with it.
    """
    frames = frames_of(error)
    if not frames or not in_library(frames[-1][0]):
        return None
    last, variables = frames[-1]
    if "/torch/optim/" in last.co_filename:
        key = "model.schedule" if last.co_filename.endswith("lr_scheduler.py") else "model.optimizer"
        owner = type(variables["self"]).__name__ + ": " if "self" in variables else ""
        return f"{key}: {owner}{reason(error)}"
    for number, (_, variables) in enumerate(frames):
        owner = variables.get("self")
        key = next((key for base, key in PART_OF_TRAINER.items() if isinstance(owner, base)), None)
        below = [code for code, _ in frames[number:]]
        alone = all(in_library(code) and "/lightning/pytorch/loops/" not in code.co_filename for code in below)
        if key is not None and not is_own(type(owner).__module__) and alone:
            return f"{key}: {type(owner).__name__}: {reason(error)}"
    if any(code.co_name == "setup_environment" for code, _ in frames):
        return f"trainer.strategy: the processes can't connect; {reason(error)}"
    ours = [code.co_filename for code, _ in frames if not in_library(code)]
    of_trainer = ours[-1:] in CALLERS or any(code.co_name == "estimated_stepping_batches" for code, _ in frames)
    if of_trainer and "/lightning/" in last.co_filename and isinstance(error, ABOUT_VALUES):
        return f"trainer: {reason(error)}"
    return None


def _unvalidated(error: BaseException, section: str, name: str) -> str | None:
    """Return the line for a metric of the validation where ``trainer.max_steps`` has ended the run before the first."""
    values = (value for _, variables in frames_of(error) for value in variables.values())
    trainer = next((value for value in values if isinstance(value, Trainer)), None)
    if trainer is None or not name.startswith("val/") or not any(trainer.num_val_batches):
        return None
    if not 0 < trainer.max_steps <= trainer.global_step:
        return None
    return (
        f"{section}.monitor: there is no '{name}', as trainer.max_steps={trainer.max_steps} ended the run before its "
        f"first validation; raise trainer.max_steps, lower trainer.val_check_interval, or set {section}: null"
    )


def _unknown_metric(section: str, name: str, logged: list[str]) -> str:
    if name.startswith("val/") and not any(metric.startswith("val/") for metric in logged):
        return (
            f"{section}.monitor: '{name}' is not logged, as nothing was validated; set data.val_fraction above 0 "
            f"(for series, the second share of data.split), trainer.limit_val_batches above 0, or {section}: null"
        )
    hint = nearest(name, logged, f"; logged are {', '.join(sorted(logged))}")
    return f"{section}.monitor: no metric '{name}' is logged{hint}"
