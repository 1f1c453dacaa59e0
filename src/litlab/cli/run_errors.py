"""What ends a command: one line for what a person can put right.

Anything else is a bug and keeps its traceback. None is ever lost: it is shown, or in a file.
"""

import errno
import pickle
import re
import traceback

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from litlab.callbacks.compile import explain_failure
from litlab.errors import UserError, first_line, list_causes
from litlab.util.device import is_out_of_memory

# What says that a file system, and not the code, is the problem.
SYSTEM_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
OUT_OF_MEMORY = (
    "out of memory: try half of --data.batch_size with twice --trainer.accumulate_grad_batches, or "
    "--trainer.precision bf16-mixed"
)
# Modules of Lightning (2.6.6) that refuse settings by a ValueError or RuntimeError.
REFUSING = ("/pytorch/loops/fit_loop.py", "/pytorch/callbacks/early_stopping.py")
# What a constructor says of its arguments.
ARGUMENT_ERRORS = (ValueError, MisconfigurationException, ImportError, OSError)
# What Python (3.11 to 3.13) says of a class that is called without one of its arguments, or with
# one that it has not.
MISSING = re.compile(r"(?:\w+\.)*(\w+)\.__init__\(\) missing \d+ required .*?arguments?: (.+)")
UNKNOWN = re.compile(
    r"(?:\w+\.)*(\w+)\.__init__\(\) got an unexpected keyword argument ('\w+')(?:\. Did you .+)?"
)


def explain_error(error: BaseException) -> str | None:
    """Return the line to print for what a person can put right; None for a bug, which is shown with
    its traceback.

    Args:
        error: What ended the command.
    """
    # Ours says it already, whatever a library has raised from it.
    causes = list_causes(error)
    for cause in causes:
        if isinstance(cause, UserError):
            return str(cause)

    # While a section of the config is built, what its class raises is about the arguments.
    notes = getattr(error, "__notes__", [])
    keys = [note.removeprefix("building ") for note in notes if note.startswith("building ")][:1]
    if is_out_of_memory(error):
        line = OUT_OF_MEMORY
    elif compiling := explain_failure(error):
        line = compiling
    elif keys and isinstance(causes[-1], pickle.UnpicklingError):
        line = (
            "a file of weights holds other things, or is damaged; look into "
            f"{torch.hub.get_dir()}/checkpoints"
        )
    elif keys and isinstance(causes[-1], ARGUMENT_ERRORS):
        line = first_line(causes[-1])
    elif keys and (missing := MISSING.fullmatch(str(causes[-1]))):
        line = f"{missing[1]} needs {missing[2]}; add it"
    elif keys and (unknown := UNKNOWN.fullmatch(str(causes[-1]))):
        line = f"{unknown[1]} has no {unknown[2]}; correct it, or leave it out"
    elif is_refusal(error) or getattr(error, "errno", None) in SYSTEM_ERRNOS:
        line = first_line(error)
    else:
        return None

    # Where the traceback is.
    tracebacks = [note for note in notes if note.startswith("traceback ")]
    if keys and not tracebacks:
        tracebacks = ["LITLAB_TRACEBACK=1 shows where"]
    return "; ".join([": ".join([*keys, line]), *tracebacks])


def is_refusal(error: BaseException) -> bool:
    """Return whether Lightning refuses a setting, by the exception or by the file that raises
    it.
    """
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return isinstance(error, MisconfigurationException) or "".join(files[-1:]).endswith(REFUSING)
